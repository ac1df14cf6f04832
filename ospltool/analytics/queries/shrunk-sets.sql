-- Sets of judged domains that were lost, emptied, thrown away or replaced by smaller ones.
select domain, day, rule as fate, set_name, nodes, start_ns, title
from verdicts
where kind = 'conclusion' and rule in ('lost', 'emptied', 'thrown away', 'shrank')
order by start_ns asc nulls first, domain asc nulls first, title asc nulls first

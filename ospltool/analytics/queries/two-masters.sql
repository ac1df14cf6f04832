-- Domains with two masters at the same time: where, when and for how long.
select domain, day, nodes, start_ns, end_ns, end_ns - start_ns as length_ns, story, title
from verdicts
where rule = 'two-masters'
order by start_ns asc nulls first, domain asc nulls first, title asc nulls first

-- Fellows that a node of a judged domain lost more than once in a day.
select domain, day, node, fellow, count(distinct start_ns) as losses, min(start_ns) as first_ns, max(start_ns) as last_ns
from facts
where kind = 'loss'
group by domain, day, node, fellow
having count(distinct start_ns) > 1
order by losses desc nulls last, domain asc nulls first, day asc nulls first, node asc nulls first,
  fellow asc nulls first

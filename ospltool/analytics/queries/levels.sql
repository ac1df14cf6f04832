-- Records of each level on each node.
select node, coalesce(level, '-') as level, count(*) as records
from records
group by node, coalesce(level, '-')
order by node asc nulls first, records desc nulls last, level asc nulls first

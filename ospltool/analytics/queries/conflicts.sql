-- Conflicts by kind, with the fellow and name-space.
select node, event as kind, namespace, fellow, count(*) as conflicts, min(time_ns) as first_ns, max(time_ns) as last_ns
from records
where event in ('conflict.master', 'conflict.native-state', 'conflict.foreign-state', 'conflict.disconnect',
  'conflict.connect', 'conflict.federation-disconnect', 'conflict.initial', 'conflict.group-complete',
  'conflict.new-namespace')
group by node, event, namespace, fellow
order by conflicts desc nulls last, node asc nulls first, kind asc nulls first, namespace asc nulls first,
  fellow asc nulls first

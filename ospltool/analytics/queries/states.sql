-- How long the service was in each state: from each ENTERING STATE to the next one in the file.
with entered as (
  select node, file, off, time_ns, state,
    lead(time_ns) over (partition by node, file order by off asc nulls first) as next_ns
  from records
  where event = 'lifecycle.entering-state'
)
select node, state, time_ns as start_ns, next_ns - time_ns as length_ns
from entered
order by node asc nulls first, file asc nulls first, off asc nulls first

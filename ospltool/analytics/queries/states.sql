-- How long the service was in each state: from each ENTERING STATE to the next one of its run.
with entered as (
  select node, file, off, time_ns, state,
    event, lead(event) over (partition by node, file order by off asc nulls first) as next_event,
    lead(time_ns) over (partition by node, file order by off asc nulls first) as next_ns
  from records
  where event in ('lifecycle.entering-state', 'lifecycle.configuration')
)
select node, state, time_ns as start_ns,
  case when next_event = 'lifecycle.entering-state' then next_ns - time_ns end as length_ns
from entered
where event = 'lifecycle.entering-state'
order by node asc nulls first, file asc nulls first, off asc nulls first

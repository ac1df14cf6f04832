-- Waits for historical data: from the request of a reader, or the start of its delivery, to the end.
with asked as (
  select node, file, off, time_ns, event, fields['reader'] as reader,
    lead(event) over (partition by node, file, fields['reader'] order by off asc nulls first) as next_event,
    lead(time_ns) over (partition by node, file, fields['reader'] order by off asc nulls first) as next_ns
  from records
  where event in ('client.request', 'client.fulfilled', 'deliver.started', 'deliver.finished')
)
select node, reader, time_ns as start_ns,
  case when next_event in ('client.fulfilled', 'deliver.finished') then next_ns - time_ns end as waited_ns
from asked
where event in ('client.request', 'deliver.started')
order by waited_ns desc nulls first, node asc nulls first, start_ns asc nulls first

-- Waits for historical data: from the request of a reader to its fulfilment.
with asked as (
  select node, file, off, time_ns, event, fields['reader'] as reader,
    lead(event) over (partition by node, file, fields['reader'] order by off asc nulls first) as next_event,
    lead(time_ns) over (partition by node, file, fields['reader'] order by off asc nulls first) as next_ns
  from records
  where event in ('client.request', 'client.fulfilled')
)
select node, reader, time_ns as start_ns,
  case when next_event = 'client.fulfilled' then next_ns - time_ns end as waited_ns
from asked
where event = 'client.request'
order by waited_ns desc nulls first, node asc nulls first, start_ns asc nulls first

-- Who followed whom: the masters that each node confirmed, with the first and last time.
select node, namespace, case when event = 'election.confirmed-self' then 'itself' else fellow end as master,
  count(*) as times, min(time_ns) as first_ns, max(time_ns) as last_ns
from records
where event in ('election.confirmed-self', 'election.confirmed-fellow')
group by node, namespace, case when event = 'election.confirmed-self' then 'itself' else fellow end
order by namespace asc nulls first, node asc nulls first, times desc nulls last, master asc nulls first

-- Elections, master conflicts and merges in each minute, by node; `trace anomalies` says whether they are a live-lock.
select node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000 as minute_ns,
  count_if(event = 'conflict.master') as master_conflicts, count_if(event = 'merge.requests') as merges,
  count_if(event = 'election.confirmed-self') as chose_itself,
  count_if(event = 'election.confirmed-fellow') as chose_a_fellow
from records
where event in ('conflict.master', 'merge.requests', 'election.confirmed-self', 'election.confirmed-fellow')
group by node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000
order by minute_ns asc nulls first, node asc nulls first

-- Records in each minute by thread: when was the node busy, and which thread.
select node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000 as minute_ns, thread, count(*) as records
from records
where clock = 'absolute'
group by node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000, thread
order by minute_ns asc nulls first, node asc nulls first, records desc nulls last, thread asc nulls first

-- Merge policies applied in each minute: many in a minute are a merge storm.
select node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000 as minute_ns, fields['policy'] as policy,
  group_name, count(*) as merges
from records
where event = 'merge.applying'
group by node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000, fields['policy'], group_name
order by minute_ns asc nulls first, node asc nulls first, policy asc nulls first, group_name asc nulls first

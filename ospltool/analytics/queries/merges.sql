-- Merge policies applied in each minute: many in a minute are a merge storm.
select node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000 as minute_ns,
  upper(fields['policy']) as policy, coalesce(group_name, namespace) as merged, count(*) as merges
from records
where event in ('merge.applying', 'merge.started') and fields['policy'] is not null
group by node, cast(floor(time_ns / 60000000000.0) as bigint) * 60000000000, upper(fields['policy']),
  coalesce(group_name, namespace)
order by minute_ns asc nulls first, node asc nulls first, policy asc nulls first, merged asc nulls first

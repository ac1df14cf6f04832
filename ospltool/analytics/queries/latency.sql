-- From a request to the end of its answer, on the node that asked: how often, usually and at worst.
with requests as (
  select node, file, off, time_ns, group_name, fellow, event,
    lead(event) over (partition by node, file, group_name, fellow order by off asc nulls first) as next_event,
    lead(time_ns) over (partition by node, file, group_name, fellow order by off asc nulls first) as next_ns
  from records
  where event in ('align.request', 'align.link', 'align.completed')
)
select node, fellow, group_name, count(*) as answers, median(next_ns - time_ns) as median_ns,
  max(next_ns - time_ns) as longest_ns
from requests
where event = 'align.request' and next_event in ('align.link', 'align.completed')
group by node, fellow, group_name
order by longest_ns desc nulls last, node asc nulls first, fellow asc nulls first, group_name asc nulls first

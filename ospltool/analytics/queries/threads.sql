-- Each thread: how often it spoke, and how long it was silent at most.
with spoken as (
  select node, thread, time_ns,
    time_ns - lag(time_ns) over (partition by node, file, thread order by off asc nulls first) as silence_ns
  from records
  where clock = 'absolute' and kind = 'trace'
)
select node, thread, count(*) as records, min(time_ns) as first_ns, max(time_ns) as last_ns,
  max(silence_ns) as longest_silence_ns
from spoken
group by node, thread
order by node asc nulls first, records desc nulls last, thread asc nulls first

-- The runs of the service in each file: from one first record in state INIT to the next.
with states as (
  select node, file, off, time_ns, state, text,
    lag(state) over (partition by node, file order by off asc nulls first) as before
  from records
  where kind = 'trace' and state <> ''
),
starts as (
  select node, file, off, time_ns,
    row_number() over (partition by node, file order by off asc nulls first) as run,
    lead(off) over (partition by node, file order by off asc nulls first) as next_off
  from states
  where state = 'INIT' and (before is null or before <> 'INIT' or substr(text, 1, 14) = 'Configuration:')
)
select s.node, s.file, s.run, s.off, s.time_ns as start_ns, max(r.time_ns) as end_ns, count(*) as records
from starts s join records r
  on r.node = s.node and r.file = s.file and r.off >= s.off and (s.next_off is null or r.off < s.next_off)
group by s.node, s.file, s.run, s.off, s.time_ns
order by s.node asc nulls first, s.file asc nulls first, s.run asc nulls first

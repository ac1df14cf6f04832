-- The fifty longest silences of each node: between two neighbouring records of a file.
with neighbours as (
  select node, file, off, time_ns, thread, text,
    lag(time_ns) over (partition by node, file order by off asc nulls first) as before_ns
  from records
  where clock = 'absolute' and kind = 'trace'
),
ranked as (
  select node, file, off, time_ns, thread, text, time_ns - before_ns as silence_ns,
    row_number() over (partition by node order by time_ns - before_ns desc nulls last, off asc nulls first) as place
  from neighbours
  where before_ns is not null
)
select node, before.silence_ns, before.time_ns as until_ns, before.thread as then_spoke,
  substr(split_part(before.text, chr(10), 1), 1, 80) as then_said, before.off
from ranked before
where place <= 50
order by silence_ns desc nulls last, node asc nulls first, off asc nulls first

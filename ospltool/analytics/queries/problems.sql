-- Warnings and errors: of the trace by level, of the logs by type.
select node, level, coalesce(template, '-') as template, count(*) as records, min(time_ns) as first_ns,
  max(time_ns) as last_ns, min(split_part(text, chr(10), 1)) as example
from records
where level in ('WARNING', 'SEVERE', 'ERROR', 'CRITICAL', 'FATAL')
group by node, level, coalesce(template, '-')
order by records desc nulls last, node asc nulls first, level asc nulls first, template asc nulls first

-- Messages that no template matches, the most frequent first, by their first 60 characters.
select node, substr(split_part(text, chr(10), 1), 1, 60) as message, count(*) as records, min(off) as first_offset
from records
where kind <> 'report' and template is null and level is not null
group by node, substr(split_part(text, chr(10), 1), 1, 60)
order by records desc nulls last, node asc nulls first, message asc nulls first

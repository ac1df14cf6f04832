-- How often each message was printed, and what it means.
select r.template, count(*) as records, max(t.level) as level, max(t.pattern) as message, max(t.meaning) as meaning
from records r left join templates t on t.id = r.template
where r.kind = 'trace'
group by r.template
order by records desc nulls last, r.template asc nulls first

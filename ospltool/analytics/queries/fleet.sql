-- The judged domains by day: what is bad, with its first health code, and the verdict as of the last day.
select domain, day, count(case when kind = 'finding' then 1 end) as findings,
  count(case when kind = 'conclusion' and is_bad then 1 end) as conclusions,
  count(distinct story) as stories, min(code) as first_code,
  min(case when kind = 'headline' then title end) as verdict
from verdicts
where kind <> 'unknown'
group by domain, day
order by findings desc nulls last, conclusions desc nulls last, domain asc nulls first, day asc nulls first

-- What was sent: answers and samples by aligner, alignee and group. Fellow 0 is a combined answer to several.
select node as aligner, fellow as alignee, group_name, count(*) as answers, sum(samples) as samples,
  max(samples) as largest
from records
where event in ('align.sent', 'align.equal')
group by node, fellow, group_name
order by samples desc nulls last, aligner asc nulls first, alignee asc nulls first, group_name asc nulls first

-- The 50 alignments that took longest, of all judged domains.
select domain, set_name, node as alignee, fellow as aligner, what as ended, samples,
  end_ns - start_ns as length_ns, start_ns
from facts
where kind = 'alignment' and end_ns is not null
order by length_ns desc nulls last, domain asc nulls first, start_ns asc nulls first, set_name asc nulls first,
  alignee asc nulls first, aligner asc nulls first
limit 50

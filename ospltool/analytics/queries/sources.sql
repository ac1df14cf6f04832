-- The files of the case, and what was found in them.
select node, file, format, bytes, records, unparsed_bytes, unmatched
from sources
order by node asc nulls first, file asc nulls first

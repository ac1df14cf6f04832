"""The check that a query for Spark reads the tables of the case, and does nothing else.

Spark itself has no such bound: a query may name files and data sources, call Java, run programs, and write.
So it is parsed here, and only what is on a list goes to Spark: classes of the syntax tree, functions, tables.
What passes is not run yet: `ospltool.analytics.spark` compares the plan that Spark makes of it with the files
of the case, so a query that is taken for another than Spark does still reads nothing else.
"""

from __future__ import annotations

import logging
import re
from typing import ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from ospltool.analytics.engines import QueryError

_EXPLAIN: Final = re.compile(
    r"\A(?:\s|--[^\n]*\n)*(?P<how>explain\b(?:\s+(?:extended|formatted|codegen|cost)\b)?)", re.IGNORECASE
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOKEN: Final = re.compile(
    r"(?P<string>'[^']*'|\"[^\"]*\")|`[A-Za-z0-9_ ]*`"
    r"|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[A-Za-z]{0,2}|\.\d+|[A-Za-z_][A-Za-z0-9_]*(?:\s+[A-Za-z_]+)*"
    r"|->|<=>|<>|!=|<=|>=|==|\|\||::|[-+*/%=<>(),.\[\]:?!&^~]"
)
"""What a query may consist of, besides blanks and comments."""

_CLAUSES: Final = _words(
    """
    where group having order sort cluster distribute limit offset window union except intersect minus select
    qualify lateral from distinct join on using is
    """
)
"""Words that Spark takes for names where no clause can begin: `records where, text.file` reads a file."""

_FUNCTIONS: Final = _words(
    """
    abs acos aggregate any any_value approx_count_distinct approx_percentile array array_agg
    array_contains array_distinct array_join array_max array_min array_position array_sort
    arrays_overlap ascii asin atan atan2 avg base64 bigint bin bit_and bit_count bit_length bit_or
    bit_xor bool_and bool_or boolean bround btrim cardinality cast cbrt ceil ceiling char char_length
    character_length chr coalesce collect_list collect_set concat concat_ws contains conv corr cos count
    count_if covar_pop covar_samp cume_dist current_date current_timestamp date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc datediff day dayofmonth dayofweek
    dayofyear decimal decode degrees dense_rank double element_at encode endswith every exists exp
    explode explode_outer extract filter find_in_set first first_value flatten float floor forall
    format_number format_string from_json from_unixtime get get_json_object greatest grouping
    grouping_id hash hex histogram_numeric hour if ifnull ilike initcap inline instr int isnan isnotnull
    isnull json_tuple kurtosis lag last last_day last_value lcase lead least left len length levenshtein
    like ln locate log log10 log2 lower lpad ltrim make_date make_timestamp map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_keys map_values max max_by md5 mean
    median min min_by minute mod mode month months_between named_struct nanvl negative nth_value ntile
    nullif nvl nvl2 octet_length overlay parse_url percent_rank percentile percentile_approx
    percentile_cont percentile_disc pmod posexplode position positive pow power quarter radians range
    rank regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
    regexp_substr regr_count repeat reverse right rint round row_number rpad rtrim second sequence sha
    sha1 sha2 sign signum sin size skewness slice smallint some sort_array soundex space split
    split_part sqrt stack startswith std stddev stddev_pop stddev_samp string string_agg listagg struct
    substr substring substring_index sum tan timestamp timestamp_micros timestamp_millis
    timestamp_seconds tinyint to_char to_date to_json to_timestamp to_unix_timestamp transform_keys
    transform_values translate trim trunc try_add try_cast try_divide try_multiply try_subtract try_sum
    try_to_number typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds
    unix_timestamp upper var_pop var_samp variance weekday weekofyear width_bucket window xxhash64 year
    zip_with
    """
)
"""What a query may call. None of them reaches beyond its arguments."""

_TABLE_FUNCTIONS: Final = frozenset({"range", "explode", "explode_outer", "posexplode", "inline", "stack"})

_NODES: Final = _words(
    """
    Add Alias Aliases And Anonymous Any ApproxQuantile ArgMax ArgMin Between BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Boolean Bracket CTE Case Cast Ceil Chr Cluster Column ColumnDef Cube CurrentDate
    CurrentTimestamp DPipe DataType DataTypeParam Decode Distinct Distribute Div Dot EQ Escape Except Exists
    Extract Filter Floor From GT GTE Group GroupConcat GroupingSets Having HexString ILike Identifier If
    IgnoreNulls In Initcap IntDiv Intersect Interval Is Join LT LTE Lambda Lateral Like Limit Literal Mod Mul
    NEQ Neg Not Null NullSafeEQ NullSafeNEQ Offset Or Order Ordered Overlay Paren Pivot PivotAlias Qualify
    Quantile RegexpLike RespectNulls Rollup Select Sort Star StrPosition Sub Subquery Substring Table
    TableAlias TableSample Trim TryCast Tuple Union Values Var Where Window WindowSpec With WithinGroup
    """
)
"""Classes of the syntax tree that a query may consist of."""


class _Reading(Spark):
    """Spark's dialect; functions keep the names by which the query calls them."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}


def check_reading(sql: str, tables: frozenset[str]) -> str:
    """Check that a query reads these tables and does nothing else; return it without comments.

    Tables are those of the case and those that the query itself names. What Spark might read otherwise than
    `sqlglot` (a backslash before a quote, a dollar sign, a word that begins a clause as a name) is refused,
    and comments are not sent.

    Args:
        sql: one query, without a semicolon at its end, or one that is explained.
        tables: what it may read.

    Raises:
        QueryError: it may do more; the message says what is not allowed.
    """
    explained = _EXPLAIN.match(sql)
    begin = explained.end() if explained else 0
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that it does not know
    try:
        text = _without_comments(sql[begin:])
        parsed = sqlglot.parse(text, dialect=_Reading)
        if len(parsed) != 1 or not isinstance(root := parsed[0], exp.Query | exp.Values):
            raise QueryError("one query at a time, and only what reads: a case is not changed")
        naming = root.find_all(exp.Alias, exp.TableAlias, exp.CTE, exp.Table)
        named = {one.alias_or_name.lower() for one in naming}
        for node in root.walk():
            _check_node(node, tables, named)
            if isinstance(node, exp.Identifier) and node.quoted and f"`{node.this}`" not in text:
                raise QueryError(f"{node.this!r} is not allowed here: it is a text, not a name")
    except (SqlglotError, RecursionError) as cause:
        reason = str(cause).partition("\n")[0]  # the lines behind it show the query in colours
        raise QueryError(f"not understood: {reason}") from None
    return f"{explained['how']} {text}" if explained else text


def unexplained(sql: str) -> str:
    """Return the query in a text that may explain it."""
    return _EXPLAIN.sub("", sql)


def _without_comments(sql: str) -> str:
    """Return a query whose tokens are the same for Spark and `sqlglot`, each at its place."""
    if "$" in sql:
        raise QueryError("a dollar sign is not allowed: Spark puts variables and quotes in its place")
    text, at, was_string = "", 0, False
    for token in sqlglot.tokenize(sql, dialect=_Reading):
        if token.start < at:
            continue  # `1L` is three tokens, all of them at one place
        word = sql[token.start : token.end + 1]
        found = _TOKEN.fullmatch(word)
        if found is None or word[:-1].endswith("\\"):
            raise QueryError(f"not allowed in a query for Spark: {word[:20]!r}")
        is_string = found["string"] is not None
        if is_string and was_string:
            raise QueryError("two quotes in a row are not allowed; use the other kind of quotes around them")
        text += re.sub(r"[^\n]", " ", sql[at : token.start]) + word
        at, was_string = token.end + 1, is_string
    return text


def _check_node(node: exp.Expr, tables: frozenset[str], named: set[str]) -> None:
    """Check one node of a syntax tree; `named` are the names that the query gives to tables and columns."""
    if (kind := type(node).__name__) not in _NODES:
        raise QueryError(f"{kind} is not allowed: {node.sql(dialect=_Reading)[:80]}")
    match node:
        case exp.Anonymous():
            places = _TABLE_FUNCTIONS if isinstance(node.parent, exp.Table) else _FUNCTIONS
            if not isinstance(node.this, str) or node.name.lower() not in places:
                raise QueryError(f"function {node.name} is not among those that a query may call")
        case exp.Dot(expression=inner) if not isinstance(inner, exp.Identifier | exp.Star):
            raise QueryError(f"function {inner.name} with a name of several parts is not allowed")
        case exp.Identifier(this=word, quoted=False) if word.lower() in _CLAUSES:
            raise QueryError(f"{word.upper()} is not allowed here: it may be taken for a name")
        case exp.Table() if not isinstance(node.this, exp.Anonymous):
            known = tables | _defined_at(node)
            if node.name.lower() not in known or len(node.parts) > 1:
                name = node.sql(dialect=_Reading)
                raise QueryError(f"{name} is not a table of the case; they are {', '.join(sorted(known))}")
        case exp.Lateral() if not isinstance(node.this, exp.Anonymous | exp.Subquery):
            raise QueryError(f"{node.this} is not allowed after LATERAL")
        case exp.Column(table=source) if source and source.lower() not in named | {"fields"}:
            raise QueryError(f"{source} is no table of the query")


def _defined_at(place: exp.Expr) -> set[str]:
    """Return the names of common table expressions that are complete at a place."""
    found: set[str] = set()
    inner: exp.Expr | None = None
    node: exp.Expr | None = place
    while node is not None:
        defining = node if isinstance(node, exp.With) else node.args.get("with_")
        if defining is not None and defining is not inner:
            for one in defining.expressions:
                if one is inner and not defining.args.get("recursive"):
                    break  # it cannot name itself, nor what comes after it
                found.add(one.alias.lower())
                if one is inner:
                    break
        inner, node = node, node.parent
    return found

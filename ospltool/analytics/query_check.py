"""The check that a query for Spark reads the tables of the case, and does nothing else.

Spark itself has no such bound: a query may name files and data sources, call Java, run programs, and write.
So the text is taken apart into tokens here, and all must be on a list: the statement, the tables (those of
the case and those that the query itself names), the functions. What Spark's own lexer might read otherwise
than this one (a backslash before a quote, a dollar sign, a comment between slashes) is refused.

What passes is not run yet: Spark plans it, and `check_plan` compares what the plan would read with the files
of the case. So a query that this module takes for another than Spark does still reads nothing else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ospltool.analytics.engines import QueryError

_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\r\n]+|--[^\r\n]*)"
    r"|(?P<string>'[^']*'|\"[^\"]*\")"
    r"|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[A-Za-z]{0,2}|\.\d+)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>->|/(?!\*)|<=>|<>|!=|<=|>=|==|\|\||::|[-+*%=<>(),.\[\]:?!&^~])"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEGINS: Final = frozenset({"select", "with", "values", "from", "explain", "("})
_FORBIDDEN: Final = _words(
    """
    add alter analyze begin cache call clear create declare delete describe drop execute export grant
    identifier immediate import insert install into kill load lock merge msck overwrite reduce refresh
    rename repair replace reset restore revoke rollback set show table transform truncate uncache unlock
    update use
    """
)
_ENDS_FROM: Final = _words(
    """
    where group having order sort cluster distribute limit offset window union except intersect minus
    select qualify lateral
    """
)
_CLAUSES: Final = _ENDS_FROM | {"from", "distinct", "join", "on", "using"}
_SINGLE: Final = frozenset({"where", "having", "qualify", "limit", "offset"})
"""Clauses of one expression: a comma at their level begins something else."""

_BEFORE_TABLES: Final = frozenset({"from", "join", ",", "(", "lateral"})
_KEYWORDS: Final = _words(
    """
    all and anti any as asc between by case cross cube current day desc distinct else end escape except
    exists explain extended filter following for formatted from full group grouping having hour ilike in
    inner intersect interval is join lateral left like limit minus minute month natural not null nulls
    of offset on or order outer over partition pivot preceding qualify range recursive regexp right
    rlike rollup row rows second select semi sets similar some sort tablesample then to trailing leading
    both unbounded union unpivot using values view when where window with within year
    """
)
"""Words that may stand before a parenthesis without being a function."""

_FROM_INSIDE: Final = frozenset({"extract", "trim", "substring", "substr", "overlay", "position"})

FUNCTIONS: Final = _words(
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


class _Token(NamedTuple):
    kind: str
    text: str


def check_reading(sql: str, tables: frozenset[str]) -> None:
    """Check that a query reads these tables and does nothing else.

    Args:
        sql: one query, without a semicolon at its end.
        tables: what it may read.

    Raises:
        QueryError: it may do more; the message says what is not allowed.
    """
    tokens = list(_tokens(sql))
    if not tokens or tokens[0].text not in _BEGINS:
        raise QueryError("one query at a time, and only what reads: a case is not changed")
    _check_words(tokens)
    _check_aliases(tokens)
    _check_tables(tokens, tables)


_OPERATOR: Final = re.compile(r"^\(\d+\) (.*)", re.MULTILINE)
_LOCATION: Final = re.compile(r"^Location: (.*)", re.MULTILINE)
_SCANS: Final = ("Scan parquet", "Scan OneRowRelation", "LocalTableScan")
_ACTS: Final = re.compile("Execute|Command|Script|Write|Insert|Append|Overwrite|Create|Drop|Cache|Alter")


def places_of(plan: str) -> frozenset[str]:
    """Return the places that a formatted plan of Spark reads files in."""
    return frozenset(_LOCATION.findall(plan))


def check_plan(plan: str, places: frozenset[str]) -> None:
    """Check that a plan reads nothing but the files of the case, and only reads.

    Args:
        plan: what `explain formatted` says, subqueries included.
        places: the places of the tables of the case, as `places_of` gives them.

    Raises:
        QueryError: it reads something else, or does something else.
    """
    for operator in _OPERATOR.findall(plan):
        if ("Scan" in operator and not operator.startswith(_SCANS)) or _ACTS.search(operator):
            raise QueryError(f"not run: Spark would do more than read the case ({operator.strip()})")
    if others := places_of(plan) - places:
        raise QueryError(f"not run: Spark would read {min(others)}")


def _tokens(sql: str) -> Iterator[_Token]:
    """Yield the tokens, words in lower case, without blanks and comments."""
    if "$" in sql:
        raise QueryError("a dollar sign is not allowed: Spark puts variables and quotes in its place")
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        if found is None:
            raise QueryError(f"not allowed in a query for Spark: {sql[at : at + 20]!r}")
        at = found.end()
        kind, text = str(found.lastgroup), found.group()
        ends_badly = text.rstrip("'\"").endswith("\\")
        if ends_badly and (kind == "string" or "--" in text):
            raise QueryError("a backslash at the end of a text or comment is not allowed")
        if kind == "string" and sql[at : at + 1] == text[0]:
            raise QueryError("two quotes in a row are not allowed; use the other kind of quotes around them")
        if kind == "quoted":
            text = text[1:-1]
            if not re.fullmatch(r"[A-Za-z0-9_ ]*", text):
                raise QueryError(f"the name `{text}` is not allowed: it may stand for a file")
            kind, text = "word", text.lower()
        if kind == "word":
            text = text.lower()
        if kind != "blank":
            yield _Token(kind, text)


def _is_definition(tokens: list[_Token], number: int) -> bool:
    """Tell whether a word is the name of a common table expression: `with NAME as (`, also with columns."""
    return _body_of(tokens, number) is not None


def _body_of(tokens: list[_Token], number: int) -> int | None:
    """Return where the parenthesis begins that a name stands for; None if it is no such name."""
    if (
        tokens[number].kind != "word"
        or not number
        or tokens[number - 1].text not in {"with", "recursive", ","}
    ):
        return None
    at = number + 1
    if at < len(tokens) and tokens[at].text == "(":
        while at < len(tokens) and (tokens[at].kind == "word" or tokens[at].text in {"(", ","}):
            at += 1
        at += 1
    return at + 1 if [one.text for one in tokens[at : at + 2]] == ["as", "("] else None


def _check_words(tokens: list[_Token]) -> None:
    """Check statements, functions and programs."""
    padded = [_Token("", ""), *tokens, _Token("", "")]
    for number, (before, token, after) in enumerate(zip(padded, tokens, padded[2:], strict=False)):
        if token.kind != "word":
            continue
        is_call = after.text == "(" and before.text != "as" and not _is_definition(tokens, number)
        if token.text in _FORBIDDEN and before.text != ".":
            raise QueryError(f"{token.text.upper()} is not allowed: a case is only read")
        if token.text == "using" and after.kind == "string":
            raise QueryError("USING with a program is not allowed")
        if is_call and before.text == ".":
            raise QueryError(f"function {token.text} with a name of several parts is not allowed")
        if (
            is_call
            and token.text not in FUNCTIONS
            and token.text not in _KEYWORDS
            and not _is_named(before, token)
        ):
            raise QueryError(f"function {token.text} is not among those that a query may call")


def _is_named(before: _Token, token: _Token) -> bool:
    """Tell whether the name before a parenthesis is an alias with columns: `) name (a, b)`."""
    return before.text == ")" and token.kind == "word"


def _check_aliases(tokens: list[_Token]) -> None:
    """Check that no word that ends or begins a clause can be meant as a name.

    Spark takes nearly every word for an alias where it cannot be a keyword: `records where, text.file` reads
    a file.
    """
    padded = [_Token("", ""), *tokens, _Token("", ""), _Token("", "")]
    for number, (before, token) in enumerate(zip(padded, tokens, strict=False)):
        after, later = padded[number + 2 : number + 4]
        if token.kind != "word" or token.text not in _CLAUSES or before.text == ".":
            continue
        is_well = before.text != "as" and not _is_definition(tokens, number)
        if token.text in {"group", "order", "sort", "cluster", "distribute"}:
            is_well = is_well and (after.text == "by" or before.text == "within")
        if token.text == "window" and after.text != "(":
            is_well = is_well and after.kind == "word" and later.text == "as"
        if not is_well:
            raise QueryError(f"{token.text.upper()} is not allowed here: it may be taken for a name")


def _compares(tokens: list[_Token], number: int) -> bool:
    """Tell whether FROM is a part of `a is distinct from b`.

    In `1 distinct from b` and `1 as is, is distinct from b` it names a table, and DISTINCT is the name of a
    column.
    """
    words = [one.text for one in tokens[max(0, number - 3) : number]]
    at = number - (3 if words[-2:] == ["is", "distinct"] else 4)
    if (words[-2:] != ["is", "distinct"] and words != ["is", "not", "distinct"]) or at < 0:
        return False
    left = tokens[at]
    is_name = left.kind == "word" and (left.text not in _KEYWORDS or left.text in {"null", "end"})
    return is_name or left.kind in {"number", "string"} or left.text in {")", "]"}


@dataclasses.dataclass(slots=True)
class _Scope:
    """A parenthesis, or the whole query.

    Attributes:
        call: the word before it.
        names: names of the common table expressions that are complete in it.
        defines: the name that it stands for, as a common table expression.
        in_from: whether tables are named at this place.
        is_single: whether the clause is one expression, without commas.
        is_recursive: whether names stand for themselves in what they are defined by.
    """

    call: str = ""
    names: set[str] = dataclasses.field(default_factory=set)
    defines: str = ""
    in_from: bool = False
    is_single: bool = False
    is_recursive: bool = False


def _check_tables(tokens: list[_Token], tables: frozenset[str]) -> None:
    """Check that every table is one of the case, or is defined by the query before that place."""
    bodies = {_body_of(tokens, number): one.text for number, one in enumerate(tokens)}
    scopes = [_Scope(names=set(tables))]
    padded = [_Token("", ""), *tokens, _Token("", "")]
    for number, token in enumerate(tokens):
        before, after = padded[number].text, padded[number + 2]
        scope = scopes[-1]
        if token.text == "from" and _compares(tokens, number):
            continue
        if before == "from" and _compares(tokens, number - 1):
            before = ""
        if token.text == "(":
            scopes.append(_Scope(before, defines=bodies.get(number, "")))
            if scope.is_recursive and scopes[-1].defines:
                scopes[-1].names.add(scopes[-1].defines)
            scopes[-1].in_from = scope.in_from and before in _BEFORE_TABLES
            continue
        if token.text == ")":
            if len(scopes) > 1:
                scopes.pop()
                if scope.defines:
                    scopes[-1].names.add(scope.defines)
            continue
        if token.text == "," and scope.is_single:
            raise QueryError("a comma is not allowed here: what follows may be taken for a table")
        is_place = before == "join" or (scope.in_from and before in _BEFORE_TABLES)
        is_query = before == "(" and token.text in {"select", "from"}
        is_lateral = token.text == "lateral" or (before == "lateral" and token.text == "view")
        if is_place and not is_query and not is_lateral:
            _check_table(token, after.text, frozenset().union(*(one.names for one in scopes)))
        elif token.kind == "word":
            _enter(scope, token.text, before, after)


def _enter(scope: _Scope, word: str, before: str, after: _Token) -> None:
    """Note the clause that a word begins."""
    if word == "with":
        scope.is_recursive = after.text == "recursive"
    elif word == "from":
        scope.in_from = scope.call not in _FROM_INSIDE
        scope.is_single = False
    elif (
        word in _ENDS_FROM and not (after.text == "(" and word in FUNCTIONS) and before not in {".", "within"}
    ):
        if word == "select" and scope.in_from and before != "(" and not _begins_columns(after):
            raise QueryError("SELECT is not allowed here: it may be taken for a name")
        if word == "window" and after.text == "(":
            if scope.in_from:
                raise QueryError("WINDOW is not allowed here: it may be taken for a name")
            return  # the function
        scope.in_from = word == "lateral" and scope.in_from
        scope.is_single = word in _SINGLE


def _begins_columns(after: _Token) -> bool:
    """Tell whether the columns of `from TABLE select` follow, and nothing that may follow an alias."""
    return after.text == "*" or (
        after.kind != "sign" and (after.text not in _KEYWORDS or after.text == "case")
    )


def _check_table(token: _Token, after: str, known: frozenset[str]) -> None:
    if after == "(" and token.text in {"range", "explode", "explode_outer", "posexplode", "inline", "stack"}:
        return
    if token.text == "values":
        return
    if token.kind != "word" or token.text not in known or after == ".":
        raise QueryError(f"{token.text} is not a table of the case; they are {', '.join(sorted(known))}")

"""The comparison in Spark, for snapshots beyond one machine; they must be there on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # a part of pyspark without types
from pyspark.errors import PySparkException

from ospltool.analytics.case import CaseError
from ospltool.analytics.engines import AnalyticsMissingError
from ospltool.analytics.spark import session
from ospltool.stores.diff import sql
from ospltool.stores.diff.sides import DiffError, InstanceDifference, Side, Wanted
from ospltool.stores.model import SAMPLES_FILE


class SparkDiff:
    """See `ospltool.stores.diff.sides.DiffEngine`."""

    def __init__(self, sides: Sequence[Side], master: str, settings: Mapping[str, str]) -> None:
        """Start a session on `master` with settings of Spark, and open the snapshots of the sides.

        Raises:
            DiffError: there is no Spark, or it cannot read them.
        """
        self._sides = len(sides)
        self._is_single = all(side.has_single_rows for side in sides)
        try:
            self._session: Any = session(master, dict(settings))
        except (CaseError, AnalyticsMissingError) as error:
            raise DiffError(str(error)) from error
        except Py4JJavaError as error:  # a master that Spark does not understand
            raise DiffError(f"{master}: {error.java_exception.getMessage()}") from error
        try:
            for number, side in enumerate(sides):
                assert side.snapshot is not None
                path = (side.snapshot.absolute() / SAMPLES_FILE).as_uri()
                frame = self._session.read.parquet(path)
                chosen = frame.filter(frame.set_number.isin(list(side.set_numbers)))
                columns = [column.strip() for column in sql.SIDE_COLUMNS.split(",")]
                for view in ("side", "whole"):
                    chosen.select(*columns).createOrReplaceTempView(f"{view}_{number}")
        except PySparkException as error:
            self.close()
            raise DiffError(_first_line(error)) from error

    def instances(self) -> Iterator[InstanceDifference]:
        """The instances that differ."""
        try:
            self._session.sql(sql.odd_rows(self._sides)).cache().createOrReplaceTempView("odd_rows")
            if self._is_single:
                query = sql.only_rows(self._sides)
            else:
                self._session.sql(sql.odd_keys(self._sides)).cache().createOrReplaceTempView("odd_keys")
                query = sql.all_rows(self._sides)
            rows = self._session.sql(query).toLocalIterator(prefetchPartitions=True)
            yield from sql.to_instances(map(tuple, rows), self._sides)
        except PySparkException as error:
            raise DiffError(_first_line(error)) from error

    def contents(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, bytes]:
        """The payloads of samples."""
        try:
            return sql.found_contents(wanted, self._payloads)
        except PySparkException as error:
            raise DiffError(_first_line(error)) from error

    def _payloads(self, side: int, places: list[tuple[int, int, int]]) -> Iterator[Any]:
        schema = "group_code bigint, digest_high bigint, digest_low bigint"
        self._session.createDataFrame(places, schema).createOrReplaceTempView("wanted")
        answer: Iterator[Any] = self._session.sql(sql.contents(side)).toLocalIterator()
        return answer

    def close(self) -> None:
        """End the session."""
        self._session.stop()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

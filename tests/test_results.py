"""The result document: verdicts and exit statuses."""

from __future__ import annotations

import pytest

from eagle_parity.findings import LAYER_IDS_DEFAULTED, SPURIOUS_EMBEDDING
from eagle_parity.reporters.sections import INFORMING
from eagle_parity.results import (
    INFORMING_COMMANDS,
    ExitStatus,
    FailOn,
    Skip,
    Verdict,
    conclude,
    decode_result,
    encode_result,
    exit_status,
)

ERROR = SPURIOUS_EMBEDDING.finding("an error")
WARNING = LAYER_IDS_DEFAULTED.finding("a warning")
OPEN = Skip(check="engine-version", reason="unknown", blocks_verdict=True)
TOLD = Skip(check="fc-width", reason="no weights")


@pytest.mark.parametrize(
    ("outcomes", "fail_on", "verdict", "status"),
    [
        ([], FailOn.ERROR, Verdict.PASS, ExitStatus.PARITY),
        ([TOLD], FailOn.ERROR, Verdict.PASS, ExitStatus.PARITY),
        ([WARNING], FailOn.ERROR, Verdict.PASS, ExitStatus.PARITY),
        ([WARNING], FailOn.WARNING, Verdict.FAIL, ExitStatus.FOUND),
        ([WARNING, OPEN], FailOn.ERROR, Verdict.INCONCLUSIVE, ExitStatus.INCONCLUSIVE),
        ([ERROR], FailOn.ERROR, Verdict.FAIL, ExitStatus.FOUND),
        ([ERROR, OPEN], FailOn.ERROR, Verdict.FAIL, ExitStatus.FOUND),
        ([ERROR], FailOn.NEVER, Verdict.FAIL, ExitStatus.PARITY),
        ([ERROR, OPEN], FailOn.NEVER, Verdict.FAIL, ExitStatus.INCONCLUSIVE),
        ([OPEN], FailOn.NEVER, Verdict.INCONCLUSIVE, ExitStatus.INCONCLUSIVE),
    ],
)
def test_the_first_that_applies(outcomes: list[object], fail_on: FailOn, verdict: Verdict, status: ExitStatus) -> None:
    result = conclude("check-config", outcomes=outcomes, judged=True, fail_on=fail_on)  # type: ignore[arg-type]  # mixed
    assert result.verdict is verdict
    assert result.fail_on is fail_on
    assert exit_status(result, fail_on) is status


@pytest.mark.parametrize("fail_on", list(FailOn))
def test_what_judged_nothing_is_inconclusive(fail_on: FailOn) -> None:
    result = conclude("diff-captures", outcomes=[], judged=False, fail_on=fail_on)
    assert exit_status(result, fail_on) is ExitStatus.INCONCLUSIVE
    assert [skip.reason for skip in result.skipped] == ["nothing was judged"]


def test_nothing_judged_is_told_beside_an_error_that_does_not_end_the_run() -> None:
    result = conclude("diff-captures", outcomes=[ERROR], judged=False, fail_on=FailOn.NEVER)
    assert exit_status(result, FailOn.NEVER) is ExitStatus.INCONCLUSIVE


def test_round_trip() -> None:
    result = conclude("check-config", outcomes=[ERROR, TOLD], judged=True)
    assert decode_result(encode_result(result), path="x") == result


def test_the_commands_that_judge_nothing_are_those_that_show_no_verdict() -> None:
    assert set(INFORMING) == INFORMING_COMMANDS

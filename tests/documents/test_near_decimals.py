"""Doubles that are off a short decimal by their rounding are that decimal."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

import ppsolve
from ppsolve.models.documents.base import as_clock, as_finite

SHORT = st.decimals(0, 99_999, places=3)


@given(SHORT)
def test_short_decimals_stay(number):
    for given_ in (number, float(number), int(number)):
        assert as_finite(given_) == Decimal(str(given_))


@given(st.lists(SHORT, min_size=2, max_size=4))
def test_sums_of_short_decimals_are_what_they_would_be_on_paper(numbers):
    added = sum(map(float, numbers))
    assert as_finite(added) == sum(numbers)
    assert as_finite(Decimal(repr(added))) == sum(numbers)


@given(
    st.integers(10**10, 10**15 - 1).filter(lambda digits: digits % 10**5),
    st.integers(1, 99),
)
def test_long_decimals_stay(digits, more):
    number = Decimal(digits * 10 + 1).scaleb(-12)
    assert as_finite(number) == number
    longer = Decimal((digits * 10 + 1) * 1000 + more).scaleb(-14)
    assert as_finite(longer) == longer


def test_examples():
    read = {10.799999999999999: "10.8", 0.1 + 0.2: "0.3", 1 / 3: "0.3333333333333333"}
    assert {number: str(as_finite(number)) for number in read} == read
    assert as_finite(-0.1 - 0.2) == Decimal("-0.3")


def test_clocks_stay():
    assert as_clock(1764139413000000001) == 1764139413000000001


def test_a_pipeline_of_near_decimals_has_the_makespan_of_short_ones():
    def makespan(forward, latency):
        given_ = {"forward": forward, "backward_input": 10.8, "backward_weight": 9.3}
        fields = {"num_devices": 4, "num_microbatches": 8, "times": given_}
        pipeline = ppsolve.PipelineInstance(**fields, p2p={"latency": latency})
        return ppsolve.simulate(pipeline, "1f1b")

    near, short = makespan(10.799999999999999, 0.1 + 0.2), makespan(10.8, 0.3)
    assert repr(near.value) == repr(short.value) == "344.7"
    assert near.tick_error is None
    rounded = makespan(32.4 / 3.1, 0.3)
    assert rounded.tick_error
    assert len(repr(rounded.value)) <= len("344.123456789")

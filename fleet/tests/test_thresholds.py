"""Thresholds compared with the engine's: times and numbers are those of its own tests."""

from margay_fleet.rules import Threshold
from margay_fleet.thresholds import Counts, Match

TIMES = [0.5, 1.0, 1.4, 2.4, 2.5, 2.6, 3.5, 4.49, 4.5, 4.51, 7.0, 7.1, 7.2, 7.3, 9.0, 9.3, 9.5, 9.6, 12.0, 12.5, 13.0, 13.5, 14.0, 14.5, 15.0,
         15.5, 16.0, 20.0]  # fmt: skip


def alerts(threshold, times=TIMES, counts=None):
    counts = counts or Counts()
    matches = (Match("1.1.1.1", "2.2.2.2", 7, 1_700_000_000_000_000 + round(t * 1e6)) for t in times)
    return [n for n, m in enumerate(matches, 1) if counts.alerts((1, 1), [threshold], m)]


def test_as_the_engine():
    assert alerts(Threshold("limit", "by_src", 1, 2)) == [1, 6, 11, 16, 19, 24, 28]
    assert alerts(Threshold("threshold", "by_dst", 3, 2)) == [3, 8, 13, 18, 21, 26]
    assert alerts(Threshold("both", "by_both", 2, 2)) == [2, 7, 12, 17, 20, 25]
    assert alerts(Threshold("detection_filter", "by_rule", 2, 2)) == [3, 4, 5, 8, 9, 10, 13, 14, 15, 18, 21, 22, 23, 26, 27]
    times = [i / 100 for i in range(6676)]
    assert len(alerts(Threshold("backoff", "by_src", 1, 0, 2), times)) == 13
    assert alerts(Threshold("backoff", "by_src", 5, 0, 5), times) == [5, 25, 125, 625, 3125]


def test_pairs_are_the_same_both_ways_and_rules_count_apart():
    counts, limit = Counts(), [Threshold("limit", "by_both", 1, 60)]
    assert counts.alerts((1, 1), limit, Match("a", "b", None, 0))
    assert not counts.alerts((1, 1), limit, Match("b", "a", None, 1))
    assert counts.alerts((1, 2), limit, Match("b", "a", None, 1))
    assert counts.alerts((1, 1), [Threshold("limit", "by_flow", 1, 60)], Match("a", "b", None, 1)), "no flow, nothing to count by"


def test_a_filter_is_asked_before_a_limit():
    counts, both = Counts(), [Threshold("limit", "by_src", 1, 60), Threshold("detection_filter", "by_src", 2, 60)]
    assert [n for n in range(6) if counts.alerts((1, 1), both, Match("a", "b", None, n))] == [2]


def test_a_full_table_forgets_what_is_over_first():
    counts, limit = Counts(limit=10), [Threshold("limit", "by_src", 1, 1)]
    for n in range(30):
        assert counts.alerts((1, 1), limit, Match(str(n), "b", None, n * 3_000_000))
    assert counts.evicted == 0 and len(counts.entries) <= 10
    for n in range(30):
        counts.alerts((1, 1), limit, Match(f"x{n}", "b", None, 100_000_000))
    assert counts.evicted > 0 and len(counts.entries) <= 10

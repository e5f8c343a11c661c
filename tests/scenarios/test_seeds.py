"""The gate: networks with faults drawn from a seed deliver everything once they heal."""

from __future__ import annotations

import pytest

from weft.protocol.config import Routing
from weft.sim.faults import Attack, Disaster
from weft.sim.scenario import ScenarioSettings, run


@pytest.mark.parametrize("seed", range(1, 9))
def test_faulty_network_heals(seed: int) -> None:
    result = run(ScenarioSettings(seed=seed))
    assert result.violations == [], result.settings.command()
    assert result.counts["delivered"]


@pytest.mark.parametrize("seed", [31, 63, 89, 135])
def test_small_busy_network_heals(seed: int) -> None:
    """Few peers lose sight of each other soon; many events per publisher leave gaps in streams."""
    result = run(ScenarioSettings(seed=seed, peers=10, topics=2, events=1_500))
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize("seed", [17, 125])
def test_network_cut_for_very_long_finds_together_again(seed: int) -> None:
    result = run(ScenarioSettings(seed=seed))
    (cut, *_) = result.faults["partitions"]  # type: ignore[misc]
    assert cut["end_ms"] - cut["start_ms"] > 200_000
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize("scheme", ["gossip", "flood"])
@pytest.mark.parametrize("seed", [1, 2])
def test_other_schemes_heal_too(seed: int, scheme: str) -> None:
    result = run(ScenarioSettings(seed=seed, scheme=scheme))  # type: ignore[arg-type]
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_calm_network_delivers_everything_at_once(seed: int) -> None:
    result = run(ScenarioSettings(seed=seed, calm=True))
    assert result.violations == []
    counts = result.counts
    assert counts["outcomes"] == {"delivered": 120}
    assert counts["lost"] == counts["cut"] == counts["duplicated"] == 0


def test_larger_network_heals() -> None:
    result = run(ScenarioSettings(seed=5, peers=80, topics=20, events=200))
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize("seed", [1, 9, 22, 32])
def test_streams_that_stay_end_the_same(seed: int) -> None:
    """Events are signed and stored, stores survive crashes."""
    result = run(ScenarioSettings(seed=seed, history=True))
    assert result.violations == [], result.settings.command()
    assert result.counts["delivered"]


@pytest.mark.parametrize(
    ("seed", "peers", "topics", "events", "routing"),
    [
        # A restarted peer took an ancestor of its stored events for one that it had missed.
        (880_040, 30, 8, 120, "tera"),
        # The store missed a parent that had been passed over before its child came.
        (880_215, 30, 8, 120, "topic-dht"),
        # A peer stalled between the answer to its subscription and the beginning of its stream.
        (880_123, 30, 8, 120, "topic-dht"),
        # Only the publisher, which is not subscribed, has the parent of an event.
        (9_831_414, 4, 20, 120, "tera"),
        (2_855_913, 6, 3, 30, "topic-dht"),
        (887_182_142_895, 5, 8, 120, "flood"),
        # Unsubscribed and subscribed again while an event was on its way to the disk.
        (8_301_293, 6, 2, 20, "tera"),
    ],
)
def test_streams_keep_their_order_and_lose_nothing(
    seed: int, peers: int, topics: int, events: int, routing: Routing
) -> None:
    settings = ScenarioSettings(seed, peers, topics, events, routing=routing, history=True)
    result = run(settings)
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize(
    ("seed", "routing", "attack"),
    [
        (1, "topic-dht", "ground"),
        (3, "topic-dht", "black-hole"),
        (1_009, "topic-dht", "eclipse"),
        (1, "pulsarcast", "black-hole"),
        (1_009, "pulsarcast", "ground"),
    ],
)
def test_an_event_from_outside_is_not_lost_to_one_that_lies(
    seed: int, routing: Routing, attack: Attack
) -> None:
    """The first access point says that it has the event, and drops it; others are asked."""
    settings = ScenarioSettings(
        seed, 5, 4, 24, routing=routing, calm=True, hostile=20, attack=attack
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize("seed", [5, 6, 15])
def test_a_member_below_one_that_passes_nothing_on_is_heard_and_hears(seed: int) -> None:
    """Its parent is its only way into the tree, and has seen all that it has (5); of two such above
    each other, the lower one lacks what its child lacks (6, 15)."""
    settings = ScenarioSettings(
        seed, 20, 1, 6, routing="pulsarcast", calm=True, hostile=30, attack="black-hole"
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_members_below_hostile_roots_alone_find_each_other() -> None:
    """Members below different children of three black holes compared with these alone."""
    settings = ScenarioSettings(
        3_002, 16, 10, 50, routing="pulsarcast", calm=True, hostile=30, attack="black-hole"
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_two_that_are_left_of_a_network_meet_in_their_topic_again() -> None:
    """Each was the other's only host: it remembered that the other forwards the topic, and asked
    nobody but the other, which does not name itself."""
    without = ("loss", "duplication", "crashes", "stalls", "slow", "churn", "distance", "clocks")
    settings = ScenarioSettings(
        166_292_852_063_609,
        *(3, 6, 11, "forward-gossip", "topic-dht"),
        disasters=("mass-crash",),
        without=without,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_newcomer_asks_forwarders_that_it_has_heard_of_beside_one_that_names_none() -> None:
    """The forwarder that it found was hostile and named nobody, and sent it on to another one for
    ever: a peer that came back to a topic was never told that it is in."""
    without = ("loss", "duplication", "distance", "crashes", "partitions", "stalls", "slow")
    settings = ScenarioSettings(
        169_815_006_827_517,
        *(4, 1, 0, "forward-treecast", "topic-dht"),
        without=(*without, "clocks"),
        hostile=1,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_members_that_were_asked_about_an_earlier_event_are_found_again() -> None:
    """Four black holes were the latest that an outside publisher had asked about its first event,
    so they alone were asked about its second one; the members were passed over as used."""
    settings = ScenarioSettings(
        169_304_113_498_289, 18, 10, 12, scheme="tree", calm=True, hierarchy=True, hostile=15
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize("seed", [1_002, 1_006, 1_036])
def test_in_a_topic_where_most_lie_all_are_asked(seed: int) -> None:
    """Eleven black holes were all that an outside publisher asked, in topics of a few members."""
    settings = ScenarioSettings(seed, 24, 14, 54, calm=True, hostile=30, attack="black-hole")
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_publisher_outside_holds_an_event_as_long_as_members_do() -> None:
    """In its part of a long cut there were a member, which crashed, and one that dropped events."""
    without = ("loss", "duplication", "distance", "partitions", "stalls", "slow", "clocks", "churn")
    settings = ScenarioSettings(
        271_167_848_396_259,
        *(7, 8, 52, "full-treecast", "topic-dht"),
        disasters=("long-partition",),
        without=without,
        hostile=1,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_publisher_that_withholds_what_its_events_follow_holds_up_no_others() -> None:
    """Two hostile peers pass on nothing but their own events, which follow each other's."""
    settings = ScenarioSettings(
        220_768_422_064_662, 5, 2, 38, scheme="tree", calm=True, history=True, hostile=30
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_what_follows_a_withheld_event_reaches_all_though_one_member_alone_had_it() -> None:
    """A hostile publisher sent it to one member, which waited in vain before others heard of it."""
    result = run(
        ScenarioSettings(
            seed=147948554575953,
            peers=4,
            topics=1,
            events=2,
            routing="topic-dht",
            history=True,
            hostile=1,
        )
    )
    assert result.violations == [], result.settings.command()


def test_nobody_is_walked_into_a_topic_by_another() -> None:
    """A hostile peer walks honest ones into topics that they are not in; with gossip, members send
    events to all that they take for one."""
    settings = ScenarioSettings(1, 5, 2, 6, scheme="gossip", calm=True, hostile=20, attack="spam")
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_root_that_lacks_events_with_a_fellow_asks_elsewhere() -> None:
    """Two of three roots lack what the third, a hostile one, drops. They agree with each other,
    which says nothing of the third."""
    settings = ScenarioSettings(
        3, 5, 4, 24, routing="pulsarcast", calm=True, hostile=20, attack="drop"
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_lookup_that_missed_a_root_makes_no_other() -> None:
    """A root's lookup waited too short for a fellow that had just spoken, and a peer farther away
    became a root in its place, a second before the end."""
    settings = ScenarioSettings(119_460_711_405_252, 7, 38, 60, routing="pulsarcast", history=True)
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_gossip_keeps_the_order_of_an_event_that_it_missed() -> None:
    """The first event of a publisher passed a member by, and came only with the view exchange after
    its second one had been handed out."""
    settings = ScenarioSettings(
        197_363_960_958_083, 33, 1, 92, scheme="gossip", calm=True, hierarchy=True
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_large_topics_are_whole_again_after_a_long_cut() -> None:
    """Both halves had full views and the same overlay id, and their members never met again."""
    without = ("loss", "duplication", "crashes", "partitions", "stalls", "slow", "clocks", "churn")
    settings = ScenarioSettings(
        50_275_725_905_931, 79, 3, 11, scheme="tree", disasters=("long-partition",), without=without
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_events_older_than_a_flood_are_compared_as_well() -> None:
    """After a long cut both sides held some thousand stretches of made-up publishers, and offered
    each other the newest 512; what honest ones had published before was never among them."""
    settings = ScenarioSettings(
        197_559_612_133_289,
        *(5, 4, 50),
        routing="pulsarcast",
        hierarchy=True,
        disasters=("long-partition",),
        hostile=10,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_members_below_hostile_forwarders_alone_get_what_comes_from_outside() -> None:
    """Four hostile peers forwarded the topic, and two honest members were their children. So liars
    were all that its publisher found to ask."""
    without = ("loss", "duplication", "crashes", "partitions", "stalls", "slow", "clocks", "churn")
    settings = ScenarioSettings(
        46_073_433_688_227,
        *(8, 43, 31, "forward-treecast", "topic-dht"),
        without=without,
        hostile=30,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_what_was_given_up_and_read_later_is_not_handed_out_behind_what_follows_it() -> None:
    """A new subscriber walked back sixteen events of a branch, gave up what came before, and then
    read a page that began below that: its first event was handed out, the given-up one was not."""
    without = ("duplication", "crashes", "stalls", "slow", "clocks", "churn")
    settings = ScenarioSettings(
        43_505_825_757_542,
        *(6, 26, 317, "forward-treecast", "topic-dht"),
        history=True,
        disasters=("flash-crowd",),
        without=without,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize(
    ("seed", "routing", "hierarchy", "disasters"),
    [
        ((203_465_642_940_649, 42, 1, 55), "pulsarcast", False, ("flash-crowd",)),
        ((78_355_538_269_965, 25, 15, 199), "flood", True, ("flash-crowd", "slow-peers")),
    ],
)
def test_a_crowd_with_wrong_clocks_begins_with_those_that_have_just_begun(
    seed: tuple[int, int, int, int], routing: str, hierarchy: bool, disasters: tuple[Disaster, ...]
) -> None:
    """They told numbers that they could not show, since they had passed the events over that
    proved them."""
    settings = ScenarioSettings(
        *seed, routing=routing, history=True, hierarchy=hierarchy, disasters=disasters
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_halves_of_a_small_topic_without_links_meet_again_after_a_long_cut() -> None:
    """Lost members spoke again, but only topics with links to them heard of it."""
    settings = ScenarioSettings(
        131_451_532_258_487,
        *(53, 20, 145, "gossip"),
        hierarchy=True,
        disasters=("power-loss", "long-partition"),
        without=("distance", "crashes", "partitions"),
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_what_a_hostile_publisher_kept_from_one_side_of_a_cut_comes_after_it() -> None:
    """One side had given it up; so did a newcomer, by their word, as the first member of the other
    side was about to bring it."""
    settings = ScenarioSettings(
        215_812_136_500_531,
        *(16, 14, 47, "tree"),
        history=True,
        disasters=("long-partition", "flash-crowd"),
        without=("distance", "partitions", "stalls", "clocks", "churn"),
        hostile=10,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize(
    ("seed", "disaster"),
    [
        ((246_998_567_764_375, 4, 1, 68), "slow-peers"),
        ((237_230_079_700_381, 15, 1, 269), "power-loss"),
    ],
)
def test_what_was_published_just_before_a_long_cut_comes_in_its_order(
    seed: tuple[int, int, int, int], disaster: Disaster
) -> None:
    """A side that lacked an event gave it up before the cut was over; then it came behind what
    follows it, or not at all."""
    settings = ScenarioSettings(
        *seed, routing="pulsarcast", history=True, disasters=(disaster, "long-partition")
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_publisher_that_leaves_goes_on_behind_its_latest_events() -> None:
    """These were not stored yet, so the next one followed an earlier one."""
    settings = ScenarioSettings(
        160_851_303_296_717,
        *(4, 1, 198, "forward-treecast", "topic-dht"),
        history=True,
        hierarchy=True,
        disasters=("slow-peers",),
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_what_waits_for_proof_of_the_beginning_stays_so_when_a_reading_ends() -> None:
    """A newcomer read what it was behind; at the end of that an event that lay before its beginning
    was taken for one that had come before it, and handed out behind those that follow it."""
    settings = ScenarioSettings(
        161_006_998_415_265,
        *(11, 1, 477, "forward-gossip", "topic-dht"),
        history=True,
        disasters=("mass-crash", "flash-crowd"),
        without=("duplication", "distance", "partitions", "stalls", "churn"),
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_head_below_what_was_handed_out_is_passed_over() -> None:
    """The member that a newcomer began with lacked what lies between two of its heads."""
    settings = ScenarioSettings(
        82_866_072_193_757,
        *(50, 32, 52, "flood"),
        history=True,
        disasters=("power-loss", "flash-crowd"),
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_gossip_asks_others_where_the_sender_of_a_later_event_lacks_earlier_ones_too() -> None:
    """They came with the next view exchange, behind the later event."""
    settings = ScenarioSettings(
        202_582_745_415_270, *(86, 1, 117, "gossip"), calm=True, hierarchy=True
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_an_event_whose_number_was_proven_old_stays_old() -> None:
    """For two minutes only, which is how long a peer holds events by default; then its date counted
    again, and its publisher's clock is fast."""
    settings = ScenarioSettings(
        77_000_009,
        *(5, 2, 60, None, "topic-dht"),
        history=True,
        brief=True,
        hierarchy=True,
        disasters=("mass-crash", "flash-crowd"),
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_what_only_a_publisher_has_that_left_for_good_is_given_up_in_the_end() -> None:
    settings = ScenarioSettings(
        77_000_030, *(8, 3, 60, None, "pulsarcast"), history=True, hierarchy=True
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


@pytest.mark.parametrize(
    ("seed", "calm"), [((19_566_659_359_573, 12, 15, 100), True), ((915, 20, 30, 100), False)]
)
def test_what_is_published_below_hostile_roots_comes_to_members_below_others(
    seed: tuple[int, int, int, int], calm: bool
) -> None:
    """A black hole took the event and told nobody, so the others' children did not know that they
    lacked it: the publisher looks for them."""
    result = run(ScenarioSettings(*seed, routing="pulsarcast", calm=calm, hostile=30))
    assert result.violations == [], result.settings.command()


def test_a_root_that_comes_back_gets_what_it_had_before_to_pass_it_on() -> None:
    """It knew that it had seen an event, and held it no more: so neither side of it spoke of it."""
    settings = ScenarioSettings(
        19_647_370_451_383,
        *(32, 38, 155, None, "pulsarcast"),
        hierarchy=True,
        without=("distance", "stalls", "slow", "clocks", "churn"),
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()


def test_a_member_that_left_is_not_sent_events_again_while_overlays_of_the_topic_merge() -> None:
    settings = ScenarioSettings(
        152_093_435_465_706,
        *(12, 2, 75, "flood"),
        without=("duplication", "distance", "crashes", "partitions", "stalls", "clocks"),
        hostile=30,
    )
    result = run(settings)
    assert result.violations == [], result.settings.command()

"""`weft topic`: topics whose owners say which peers may publish."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence

from weft.cli.output import Fields, rows_in_words
from weft.cli.parser import plain_topic, repeated_option
from weft.cli.problem import FAILED, USAGE, Problem
from weft.cli.settings import home_option, running_peer

HELP = "Make, show and change topics that have owners"
DETAILS = """
A topic with owners has versions, signed by them; the newest says which peers may
publish. All but its publishers' events are refused by every peer that knows the
owners. Nobody is believed to own a topic by their own word:

  /~PEER_ID/orders         the name says the owner: that peer, for everybody, with
                           all topics below; 'weft topic name /orders' prints yours
  /orders                  owned by those that you 'follow'; others' claims are shown
                           by 'show', and change nothing

  create TOPIC [PEER...]   make it your own; the peers may publish beside you
                           (--hierarchy: its subscribers get sub-topics' events, too;
                           --from: it has the history of another topic, anybody's)
  name TOPIC               the name of a topic of yours that nobody can take
  show TOPIC               its newest version
  add TOPIC NAME           hang the sub-topic TOPIC/NAME under it, asked for or not
  ask TOPIC NAME           ask the owners of a topic that is not yours for TOPIC/NAME
  allow TOPIC PEER...      let these publish
  revoke TOPIC PEER...     let them publish no longer; what was published stays
  restrict TOPIC           only owners and allowed peers publish (--anyone: anyone)
  follow TOPIC PEER...     these are its owners: believe nobody else

Needs a running peer with a store ('weft peer --store').
"""
EXAMPLES = """
weft topic name /orders                      /~12D3KooW.../orders, yours for everybody
weft topic create /~12D3KooW.../orders       others may publish there once you allow them
weft topic create /sports 12D3KooW...        that peer may publish, and you
weft topic follow /sports 12D3KooW...        believe that this peer owns /sports
weft topic create /chat --anyone             owned, but open
weft topic create /news --owner 12D3KooW...  held together with another peer
weft topic create /sports --hierarchy        events of /sports/football count in /sports
weft topic create /archive --from /sports    'weft history /archive' begins with /sports
weft topic add /sports football
weft topic ask /sports tennis                the owner sees the wish in 'weft topic show'
weft topic revoke /sports 12D3KooW...
weft topic show /sports --json
"""
ACTIONS = ("create", "name", "show", "add", "ask", "allow", "revoke", "restrict", "follow")
_ASKED = {
    "granted": "done: the sub-topic hangs there",
    "waiting": "an owner of the topic has been told; it hangs there once they add it",
}
_NEED_PEERS = ("allow", "revoke", "follow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("topic", type=plain_topic, metavar="TOPIC")
    values = "peer ids, or a sub-topic's name"
    parser.add_argument("values", nargs="*", default=(), metavar="PEER", help=values)
    home_option(parser)
    owner = "with create: this peer may change the topic, too (repeat for more)"
    repeated_option(parser, "--owner", "PEER", owner)
    parser.add_argument("--anyone", action="store_true", help="anyone may publish")
    parser.add_argument(
        "--hierarchy",
        action="store_true",
        help="with create: the topic's subscribers get the events of its sub-topics, too",
    )
    parser.add_argument(
        "--from",
        dest="made_from",
        metavar="TOPIC",
        help="with create: the topic, or the CID of a version of it, whose history it goes on from",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_run(request_of(args), args))


def request_of(args: argparse.Namespace) -> Fields:
    """What to ask the running peer for; `Problem` where something is missing or too much."""
    action, values = args.action, args.values
    if action in _NEED_PEERS and not values:
        raise Problem(f"weft topic {action} needs at least one peer id", USAGE)
    if action in ("add", "ask") and len(values) != 1:
        raise Problem(f"weft topic {action} needs one name: the sub-topic's last segment", USAGE)
    if action in ("name", "show", "restrict") and values:
        raise Problem(f"weft topic {action} takes nothing but the topic", USAGE)
    if args.owner and action != "create":
        raise Problem("--owner is for create: a topic's owners cannot change later", USAGE)
    if args.hierarchy and action != "create":
        raise Problem("--hierarchy is for create; sub-topics that are added belong to it", USAGE)
    if args.made_from and action != "create":
        raise Problem("--from is for create", USAGE)
    if args.anyone and action not in ("create", "restrict"):
        raise Problem("--anyone is for create and restrict", USAGE)
    if action not in ("add", "ask"):
        check_peers([*values, *args.owner])
    request: Fields = {"action": action, "topic": args.topic, "anyone": args.anyone}
    if action in ("add", "ask"):
        request["segment"] = values[0]
    elif action == "follow":
        request["owners"] = values
    else:
        request |= {"peers": values, "owners": args.owner}
    if args.hierarchy:
        request["hierarchy"] = True
    if args.made_from:
        request["made_from"] = args.made_from
    return request


def check_peers(given: Sequence[str]) -> None:
    """What is no peer id is told before a running peer is asked."""
    from weft.ids import BadId, parse_peer

    for one in given:
        try:
            parse_peer(one)
        except BadId as error:
            raise Problem(str(error), USAGE) from error


async def _run(request: Fields, args: argparse.Namespace) -> int:
    from weft.ids import OWNED

    async with running_peer(args) as client:
        answer = await client.ask("topic", **request)
        info = answer["info"]
    if args.action == "ask":
        outcome = answer["outcome"]
        print(json.dumps({"outcome": outcome}) if args.json else _ASKED[outcome])
        return 0
    if args.action == "name":
        print(json.dumps({"name": answer["outcome"]}) if args.json else answer["outcome"])
        return 0
    if args.json:
        print(json.dumps(info))
    elif args.action == "follow":
        lines = [followed_in_words(args.topic, args.values, info)]
        print(*lines, *rivals_in_words(args.topic, answer["claims"]), sep="\n")
    else:
        unknown = unknown_in_words(args.topic, answer["claims"], answer["believed"])
        print(in_words(info) if info else unknown)
        for line in (
            rivals_in_words(args.topic, answer["claims"]) if args.action == "create" else ()
        ):
            print(line)
        if args.action == "create" and info and not args.topic.startswith(OWNED):
            print(f"others believe this once they say so: {_follow(args.topic, info['owners'])}")
    return FAILED if info is None and args.action == "show" else 0


def followed_in_words(topic: str, owners: list[str], info: Fields | None) -> str:
    """What is believed from now on, and what is known of the topic by these owners."""
    believed = f"from now on only {', '.join(owners)} own {topic}"
    if info is None:
        return f"{believed}; no version of it is known yet: it is asked for, and comes with news"
    return f"{believed}\n{in_words(info)}"


def rivals_in_words(topic: str, claims: list[list[str]]) -> list[str]:
    """Others that say that they own the topic, too."""
    return [f"{topic} is claimed by {', '.join(one)}; that is not believed here" for one in claims]


def unknown_in_words(topic: str, claims: list[list[str]], believed: Sequence[str] = ()) -> str:
    """What to say of a topic of which no version is known; `believed`: whose word counts."""
    from weft.ids import OWNED

    if topic.startswith(OWNED):
        owner = topic[len(OWNED) :].partition("/")[0]
        return f"{topic} is {owner}'s by its name; no version of it is known, so only it publishes"
    if believed:
        owners = ", ".join(believed)
        said = f"{topic} is believed to be owned by {owners}; no version of it is known yet"
        return "\n".join([said, *rivals_in_words(topic, claims)])
    claimed = [f"claimed by {', '.join(owners)}: {_follow(topic, owners)}" for owners in claims]
    return "\n".join([f"nobody is known to own {topic}", *claimed])


def _follow(topic: str, owners: list[str]) -> str:
    return f"weft topic follow {topic} {' '.join(owners)}"


def in_words(info: Fields) -> str:
    publishers = info["publishers"]
    allowed = "anyone" if publishers is None else ", ".join(publishers) or "only the owners"
    rows = [
        ("topic", info["topic"] + (" (yours to change)" if info["mine"] else "")),
        ("version", f"{info['cid']}, number {info['sequence']}"),
        ("before", info["parent"] or "it is the first"),
        ("owners", ", ".join(info["owners"])),
        ("publishers", allowed),
        ("record", info["record"]),
    ]
    if info["hierarchy"]:
        rows.append(("hierarchy", f"{info['hierarchy']}: events count in the topics above, too"))
    if info.get("made_from"):
        rows.append(("made from", f"{info['made_from']}  {info['made_from_version']}"))
    rows += [("sub-topic", f"{name}  {cid}") for name, cid in info["sub_topics"].items()]
    rows += [("asked for", f"{name}  by {peer}") for name, peer in info["asked"].items()]
    return rows_in_words(rows, 11)

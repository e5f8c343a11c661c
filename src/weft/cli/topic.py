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
The owners of a topic sign its versions; the newest version says which peers may
publish. Every peer that knows the owners refuses events of other publishers. A
peer that only claims to own a topic is not believed:

  /~PEER_ID/orders         the name contains the owner's peer id, so every peer knows
                           the owner of this topic and all topics below it;
                           'weft topic name /orders' prints such a name of yours
  /orders                  belongs to the owners that you 'follow'; 'show' lists
                           claims of other peers, which have no effect

  create TOPIC [PEER...]   become its owner; the named peers may publish, too
                           (--hierarchy: its subscribers get sub-topics' events, too;
                           --from: begin with the history of another topic)
  name TOPIC               print a name of a topic that only you can own
  show TOPIC               show its newest version
  add TOPIC NAME           add the sub-topic TOPIC/NAME, whether asked for or not
  ask TOPIC NAME           ask the owners of a topic for the sub-topic TOPIC/NAME
  allow TOPIC PEER...      let these peers publish, too
  revoke TOPIC PEER...     stop letting them publish; the events they published stay
  restrict TOPIC           only owners and allowed peers publish (--anyone: anyone)
  follow TOPIC PEER...     believe that these peers, and no others, own the topic

Needs a running peer with a store ('weft peer --store').
"""
EXAMPLES = """
weft topic name /orders                      prints /~12D3KooW.../orders
weft topic create /~12D3KooW.../orders       other peers may publish once you allow them
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
    "granted": "done: the sub-topic was added",
    "waiting": "an owner of the topic has been told; the sub-topic is there once it is added",
}
_NEED_PEERS = ("allow", "revoke", "follow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("topic", type=plain_topic, metavar="TOPIC", help="such as /orders")
    values = "peer ids; with add and ask the last segment of the sub-topic's name"
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
        help="with create: the topic (or the CID of a version of it) whose history comes first",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_run(request_of(args), args))


def request_of(args: argparse.Namespace) -> Fields:
    """The request to the running peer; `Problem` if an argument is missing or too many."""
    action, values = args.action, args.values
    if action in _NEED_PEERS and not values:
        raise Problem(f"topic {action} needs at least one peer id", USAGE)
    if action in ("add", "ask") and len(values) != 1:
        raise Problem(f"topic {action} needs one name: the sub-topic's last segment", USAGE)
    if action in ("name", "show", "restrict") and values:
        raise Problem(f"topic {action} takes only the topic, no other argument", USAGE)
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
    """Refuse texts that are no peer ids, before a running peer is asked."""
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
            print(f"other peers must be told: {_follow(args.topic, info['owners'])}")
    return FAILED if info is None and args.action == "show" else 0


def followed_in_words(topic: str, owners: list[str], info: Fields | None) -> str:
    """The owners that are believed from now on, and their newest version of the topic."""
    believed = f"from now on only {', '.join(owners)} own {topic}"
    if info is None:
        return f"{believed}; no version of it is known yet: other peers are asked for it"
    return f"{believed}\n{in_words(info)}"


def rivals_in_words(topic: str, claims: list[list[str]]) -> list[str]:
    """Others that say that they own the topic, too."""
    return [f"{topic} is claimed by {', '.join(one)}; that is not believed here" for one in claims]


def unknown_in_words(topic: str, claims: list[list[str]], believed: Sequence[str] = ()) -> str:
    """A text about a topic of which no version is known; `believed`: its owners, if known."""
    from weft.ids import OWNED

    if topic.startswith(OWNED):
        owner = topic[len(OWNED) :].partition("/")[0]
        return (
            f"{topic} belongs to {owner}, as its name says; no version of it is known, so only "
            "that peer may publish"
        )
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

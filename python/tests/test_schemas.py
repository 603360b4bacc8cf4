"""The types of the package are those of `schemas/json`: members, which are required, kinds of values, enumerations."""

import contextlib
import copy
import json
import random
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from llmx import UnreadableError, acts, deliveries, documents
from llmx.codec import constants, is_required

from .fake_gateway import cfp, delivery

SCHEMAS = Path(__file__).parents[2] / "schemas" / "json"

Load = Callable[[str], Any]

# Type, file, path of definitions within it.
PAIRS: list[tuple[type, str, tuple[str, ...]]] = [
    *((kind, f"{kind.act}.json", ()) for kind in get_args(acts.Act)),
    (acts.Scope, "envelope.json", ("properties", "scope")),
    (deliveries.Call, "delivery.json", ("$defs", "call")),
    (deliveries.Award, "delivery.json", ("$defs", "award")),
    (deliveries.Rejection, "reject.json", ()),
    (deliveries.Cancellation, "delivery.json", ("$defs", "cancellation")),
    (deliveries.Awarded, "delivery.json", ("$defs", "awarded")),
    (deliveries.Offers, "delivery.json", ("$defs", "offers")),
    (deliveries.StandingBid, "delivery.json", ("$defs", "bid")),
    (deliveries.Report, "delivery.json", ("$defs", "report")),
    (deliveries.ContractorFailure, "delivery.json", ("$defs", "contractor_failure")),
    (deliveries.Misunderstanding, "delivery.json", ("$defs", "misunderstanding")),
    (deliveries.Closing, "closed.json", ()),
    (deliveries.Receipt, "ack.json", ()),
    (deliveries.Turn, "turn.json", ()),
    (documents.Registration, "registration.json", ()),
    (documents.Group, "group.json", ()),
    (documents.BargainRules, "bargain.json", ()),
    (documents.Auction, "english_auction.json", ()),
    (documents.Mandate, "mandate.json", ()),
    (documents.Policy, "policy.json", ()),
]

# Members of schemas that the types leave out: the paper's spellings, what the package writes itself, and teams and panels,
# which it neither opens nor joins, with the reputation that panels give.
LEFT_OUT: Mapping[str, frozenset[str]] = {
    "cfp.json": frozenset({"$schema", "deadline", "panel", "team"}),
    "offer.json": frozenset({"$schema", "value", "timestamp"}),
    "join.json": frozenset({"$schema", "terms"}),
    "delivery.json": frozenset({"team", "brief"}),
    "closed.json": frozenset({"conclusion", "tasks"}),
    "ack.json": frozenset({"seats", "step", "tasks", "turn"}),
    "policy.json": frozenset({"reputation"}),
}
# A required member that a schema asks for in another way: an offer has `terms`, or the paper's `value`.
REQUIRED_HERE = frozenset({"terms"})


@pytest.mark.parametrize(("kind", "file", "path"), PAIRS, ids=[f"{kind.__name__}" for kind, _, _ in PAIRS])
def test_a_type_has_the_members_of_its_schema(kind: type, file: str, path: tuple[str, ...]) -> None:
    assert list(differences(kind, file, path, read)) == []


def test_receipts_that_ride_are_those_of_the_schema() -> None:
    schema = read("delivery.json")["properties"]["receipts"]
    hint = tuple[deliveries.RiddenReceipt, ...]
    assert list(compare(hint, schema, "delivery.json", read, "receipts")) == []


def test_no_document_ends_in_anything_but_a_delivery_or_a_pointer_to_its_fault() -> None:
    whole = delivery(cfp(bargain={"parties": ["a", "b"], "rules": {"issues": [{"name": "x", "min": 1, "max": 2}]}}))
    whole["receipts"] = [{"ack_of": "m", "disposition": "ok"}]
    for seed in range(3000):
        draw = random.Random(seed)
        document = broken(copy.deepcopy(whole), draw)
        with contextlib.suppress(UnreadableError):
            deliveries.read_delivery(document)


def broken(document: Any, draw: random.Random) -> Any:
    """A document with one value replaced, somewhere in it."""
    if isinstance(document, (dict, list)) and document and draw.random() < 0.85:
        key = draw.choice(list(document) if isinstance(document, dict) else list(range(len(document))))
        document[key] = broken(document[key], draw)
        return document
    return draw.choice([None, True, 0, -1.5, "", "x", [], {}, [[]], {"act": []}, "2026-13-99", {"kind": {}}])


def test_what_is_left_out_stands_in_the_schemas() -> None:
    for file, names in LEFT_OUT.items():
        schema = read(file)
        kinds_of_it = [schema, *schema.get("$defs", {}).values()]
        assert names <= {name for kind in kinds_of_it for name in kind.get("properties", {})}


def test_envelopes_are_written_and_read_with_the_members_of_their_schemas() -> None:
    sent = read("envelope.json")["properties"].keys()
    written = {"msg_id", "ts", "from", "negotiation", "seq", "in_reply_to"}
    written |= {field.name for field in fields(acts.CallAddress)}
    # A caller's own trace, and (from a later exchange on) the wish for a receipt are not sent.
    assert set(sent) - written <= {"traceparent", "receipt"}
    assert written <= set(sent)
    received = read("delivery.json")["properties"]["envelope"]["properties"].keys()
    assert set(received) == {"msg_id", "ts", "from", "to", "negotiation", "in_reply_to", "traceparent"}
    assert set(read("delivery.json")["properties"]) - {"receipts"} == {"envelope", "payload"}


def test_a_type_that_differs_from_a_schema_by_one_member_is_found() -> None:
    """Every schema is changed in every member, one at a time; each change is found."""
    tried = 0
    for kind, file, path in PAIRS:
        for mutant, change in mutants(kind, read(file), path, LEFT_OUT.get(file, frozenset({"$schema"}))):
            found = list(differences(kind, file, path, Changed(file, mutant)))
            assert found, f"{kind.__name__}: {change} in {file} is not found"
            tried += 1
    assert tried > 500


def mutants(kind: type, schema: Any, path: tuple[str, ...], left_out: frozenset[str]) -> Iterator[tuple[Any, str]]:
    """The schema with one member removed, added, renamed, or with its duty changed; also within nested objects."""
    for place in objects(at(schema, path), path, left_out):
        here = at(schema, place)
        for name in here["properties"]:
            if name in left_out:
                continue
            for change in ("remove", "rename", "duty"):
                mutant = copy.deepcopy(schema)
                target = at(mutant, place)
                required = target.setdefault("required", [])
                if change == "duty":
                    # Always written; `terms` is required here whatever the schema says.
                    is_always_there = name in constants(kind) or kind is acts.Scope
                    if is_always_there or (kind is acts.Offer and name == "terms"):
                        continue
                    required.remove(name) if name in required else required.append(name)
                else:
                    member = target["properties"].pop(name)
                    if name in required:
                        required.remove(name)
                    if change == "rename":
                        target["properties"][name + "_new"] = member
                yield mutant, f"{change} {name}"
        mutant = copy.deepcopy(schema)
        at(mutant, place)["properties"]["brand_new"] = {"type": "string"}
        yield mutant, "add brand_new"
        for name, member in here["properties"].items():
            if "enum" in member and name not in left_out:
                mutant = copy.deepcopy(schema)
                at(mutant, place)["properties"][name]["enum"].append("brand_new")
                yield mutant, f"one more value of {name}"


def objects(schema: Any, path: tuple[str, ...], left_out: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Where objects with members of their own stand, in a schema and below what is not left out of it."""
    if "properties" in schema and "$ref" not in schema:
        yield path
        for name, member in schema["properties"].items():
            if name not in left_out:
                yield from objects(member, (*path, "properties", name), left_out)
    if isinstance(schema.get("items"), dict):
        yield from objects(schema["items"], (*path, "items"), left_out)


def differences(kind: Any, file: str, path: tuple[str, ...], load: Load) -> Iterator[str]:
    """How a type differs from the schema at a place."""
    yield from object_differences(kind, at(load(file), path), file, load)


def object_differences(kind: Any, schema: Any, file: str, load: Load) -> Iterator[str]:
    """How a type differs from the schema of an object, whose references start from a file."""
    hints = get_type_hints(kind)
    left_out = LEFT_OUT.get(file, frozenset({"$schema"}))
    members = {name: member for name, member in schema.get("properties", {}).items() if name not in left_out}
    own = {field.name: field for field in fields(kind)}
    for name in members.keys() ^ (own.keys() | constants(kind).keys()):
        yield f"{kind.__name__}.{name} is only on one side"
    required = set(schema.get("required", ())) | (REQUIRED_HERE if kind is acts.Offer else frozenset())
    for name, field in own.items():
        # A default that is no absence is always written.
        is_written = is_required(field) or field.default is not None
        if name in members and is_written != (name in required):
            yield f"{kind.__name__}.{name} is required on one side only"
        if name in members:
            yield from compare(hints[name], members[name], file, load, f"{kind.__name__}.{name}")
    for name, value in constants(kind).items():
        if name in members and members[name].get("const", value) != value:
            yield f"{kind.__name__}.{name} has another value"


def compare(hint: Any, schema: Any, file: str, load: Load, where: str) -> Iterator[str]:
    """How a type hint differs from the schema of a member."""
    if "$ref" in schema:
        name, _, pointer = schema["$ref"].partition("#")
        target, path = name or file, tuple(part for part in pointer.split("/") if part)
        resolved = at(load(target), path)
        forbidden = {name for name, member in schema.get("properties", {}).items() if member is False}
        if forbidden:
            own = {name: member for name, member in resolved["properties"].items() if name not in forbidden}
            resolved = {**resolved, "properties": own}
        dataclass = next((one for one in alternatives(hint) if is_dataclass(one)), None)
        if dataclass is not None and "properties" in resolved and kinds(resolved) == {"object"}:
            yield from object_differences(dataclass, resolved, target, load)
        else:
            yield from compare(hint, resolved, target, load, where)
        return
    wanted, found = kinds(schema), {kind_of(one) for one in alternatives(hint)}
    if wanted != found:
        yield f"{where}: {sorted(found)} here, {sorted(wanted)} in the schema"
    texts = {value for one in alternatives(hint) if get_origin(one) is Literal for value in get_args(one)}
    constant = [schema["const"]] if "const" in schema else ()
    enum = set(schema.get("enum") or schema.get("then", {}).get("enum") or constant)
    if texts != enum and (texts or enum) and str not in alternatives(hint):
        yield f"{where}: values {sorted(texts ^ enum)} are only on one side"
    for one in alternatives(hint):
        if get_origin(one) is tuple and "items" in schema and "array" in wanted:
            yield from compare(get_args(one)[0], schema["items"], file, load, where + "[]")
        elif is_dataclass(one):
            yield from object_differences(one, schema, file, load)


def alternatives(hint: Any) -> list[Any]:
    """The members of a union, without None."""
    if get_origin(hint) in (Union, types.UnionType):
        return [one for one in get_args(hint) if one is not type(None)]
    return [hint]


def kind_of(hint: Any) -> str:
    """The JSON type of a type hint."""
    origin = get_origin(hint)
    if origin is tuple:
        return "array"
    if is_dataclass(hint) or (origin is not None and isinstance(origin, type) and issubclass(origin, Mapping)):
        return "object"
    if origin is Literal:
        return "string"
    return {str: "string", int: "integer", bool: "boolean", datetime: "string"}[hint]


def kinds(schema: Any) -> set[str]:
    """The JSON types a schema takes."""
    stated = schema.get("type")
    if stated is None:
        return {"string"} if "enum" in schema or "const" in schema else {"object"}
    return {stated} if isinstance(stated, str) else set(stated) - {"null"}


class Changed:
    """The schemas, one of them replaced."""

    def __init__(self, name: str, schema: Any) -> None:
        self.name, self.schema = name, schema

    def __call__(self, name: str) -> Any:
        return self.schema if name == self.name else read(name)


def at(schema: Any, path: tuple[str, ...]) -> Any:
    """What stands at a path."""
    for part in path:
        schema = schema[part]
    return schema


def read(name: str) -> Any:
    """A schema, a new copy each time."""
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))

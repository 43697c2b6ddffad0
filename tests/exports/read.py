"""Reads an export by what its format's own people wrote, and prints as JSON what it holds: read.py FORMAT FILE

`calls` and `ns` (self time in pprof, else time) are by function, `losses` what the file tells of losses."""

import collections
import json
import sys


def perfetto(data):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    trace.ParseFromString(data)
    names, values, clocks, tracks = {}, {}, {}, {}
    events, losses = [], None
    begun, named = set(), collections.Counter()
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & 1:
            names[sequence], values[sequence] = {}, {}
        if packet.HasField("trace_packet_defaults"):
            tracks[sequence] = packet.trace_packet_defaults.track_event_defaults.track_uuid
        for clock in packet.clock_snapshot.clocks:
            if clock.is_incremental:
                clocks[sequence] = clock.timestamp
        if packet.HasField("interned_data"):
            names[sequence].update((name.iid, name.name) for name in packet.interned_data.event_names)
            values[sequence].update((name.iid, name.name) for name in packet.interned_data.debug_annotation_names)
        if packet.HasField("track_descriptor"):
            begun.add(packet.track_descriptor.uuid)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        at = packet.timestamp
        if not packet.timestamp_clock_id:
            # An end event has no name, and needs no check of names.
            assert packet.sequence_flags & 2 or packet.track_event.type == TrackEvent.TYPE_SLICE_END
            clocks[sequence] += at
            at = clocks[sequence]
        name = event.name or names.get(sequence, {}).get(event.name_iid)
        track = event.track_uuid or tracks[sequence]
        assert track in begun, "an event of a track that nothing describes"
        named.update(values[sequence][value.name_iid] for value in event.debug_annotations if value.name_iid)
        remarks = {annotation.name or values[sequence][annotation.name_iid] for annotation in event.debug_annotations}
        if "incomplete" in (name or ""):
            losses = name
        elif event.type != TrackEvent.TYPE_COUNTER and "nopal" not in event.categories:
            events.append((at, len(events), track, event.type, name, remarks))
    # Perfetto's trace processor orders by time, then by place in the file.
    events.sort(key=lambda event: event[:2])
    calls, ns, open_slices = collections.Counter(), collections.Counter(), collections.defaultdict(list)
    for at, _, track, kind, name, remarks in events:
        if kind == TrackEvent.TYPE_SLICE_END:
            name, begin = open_slices[track].pop()
            ns[name] += at - begin
        else:
            calls[name] += not remarks & {"resumed", "began before"}
            if kind == TrackEvent.TYPE_SLICE_BEGIN:
                open_slices[track].append((name, at))
    assert not any(open_slices.values()), "slices without ends"
    sizes = {"bytes": len(data), "events": len(events)}
    return {"calls": calls, "ns": ns, "losses": losses, "values": named, **sizes}


def otlp(data):
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    traces = TracesData()
    traces.ParseFromString(data)
    calls, ns, losses, ids, parents = collections.Counter(), collections.Counter(), None, set(), set()
    for resource in traces.resource_spans:
        for attribute in resource.resource.attributes:
            if attribute.key == "nopal.losses":
                losses = attribute.value.string_value
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            assert len(span.trace_id) == 16 and len(span.span_id) == 8
            assert span.span_id not in ids, "two spans with one identity"
            ids.add(span.span_id)
            parents.add(span.parent_span_id)
            calls[span.name] += 1
            ns[span.name] += span.end_time_unix_nano - span.start_time_unix_nano
    assert parents <= ids | {b""}, "a parent that is no span"
    return {"calls": calls, "ns": ns, "losses": losses, "nested": len(parents) - 1}


def csv(data):
    import csv
    import io

    calls, ns = collections.Counter(), collections.Counter()
    for row in csv.DictReader(io.StringIO(data.decode())):
        calls[row["function"]] += row["state"] != "began_before"
        ns[row["function"]] += int(row["self_ns"] or 0)
    return {"calls": calls, "ns": ns, "losses": None}


def speedscope(data):
    trace = json.loads(data)
    frames = [frame["name"] for frame in trace["shared"]["frames"]]
    calls, ns = collections.Counter(), collections.Counter()
    for profile in trace["profiles"]:
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        at, stack = profile["startValue"], []
        for event in profile["events"]:
            assert at <= event["at"] <= profile["endValue"], "time goes back"
            at = event["at"]
            if event["type"] == "O":
                stack.append((event["frame"], at))
                calls[frames[event["frame"]]] += 1
            else:
                frame, begin = stack.pop()
                assert frame == event["frame"], "an end of another frame"
                ns[frames[frame]] += at - begin
        assert not stack
    return {"calls": calls, "ns": ns, "losses": trace["name"] if "incomplete" in trace["name"] else None}


def firefox(data):
    profile = json.loads(data)
    product = profile["meta"]["product"]
    calls, ns, processes = collections.Counter(), collections.Counter(), {}
    for thread in profile["threads"]:
        assert processes.setdefault(thread["pid"], thread["processName"]) == thread["processName"]
        for table in (table for table in thread.values() if isinstance(table, dict)):
            assert {len(column) for column in table.values() if isinstance(column, list)} == {table["length"]}
        texts, functions, frames = thread["stringArray"], thread["funcTable"]["name"], thread["frameTable"]["func"]
        names = [texts[functions[frames[frame]]] for frame in thread["stackTable"]["frame"]]
        prefixes = thread["stackTable"]["prefix"]
        assert all(prefix is None or prefix < stack for stack, prefix in enumerate(prefixes))
        samples, times, before = thread["samples"], [0] * len(names), None
        assert samples["weightType"] == "tracing-ms"
        end = sum(samples["timeDeltas"]) + samples["weight"][-1]
        assert abs(end - thread["unregisterTime"]) < 1e-3, "samples are not from begin to end"
        for stack, weight in zip(samples["stack"], samples["weight"]):
            if stack is not None:
                times[stack] += round(weight * 1e6)
            if stack is not None and prefixes[stack] == before:
                calls[names[stack]] += 1
            else:
                assert stack is before or stack == prefixes[before], "more than one call has changed"
            before = stack
        for stack in reversed(range(len(names))):
            ns[names[stack]] += times[stack]
            if prefixes[stack] is not None:
                times[prefixes[stack]] += times[stack]
    return {"calls": calls, "ns": ns, "losses": product if "incomplete" in product else None}


def parquet(root):
    import duckdb

    def rows(query):
        return duckdb.sql(query.format(*(f"'{root}/{table}/*/*/*/*/*.parquet'" for table in ("calls", "traces")))).fetchall()

    groups = rows("SELECT count(DISTINCT (file_name, row_group_id)) FROM parquet_metadata({0})")[0][0]
    back = "start_ns < lag(start_ns) OVER (ORDER BY filename, file_row_number)"
    rows_back = f"SELECT {back} AS is_back FROM read_parquet({{0}}, file_row_number = true)"
    assert rows(f"SELECT count(*) FILTER (is_back) FROM ({rows_back})")[0][0] < groups, "row groups are not sorted"
    calls = rows("SELECT function, count(*) FILTER (state <> 'began_before') FROM {0} GROUP BY 1")
    ns = rows("SELECT function, coalesce(sum(self_ns), 0)::BIGINT FROM {0} GROUP BY 1")
    losses = rows("SELECT max(losses) FROM {1}")[0][0]
    return {"calls": dict(calls), "ns": dict(ns), "losses": losses}


kind, path = sys.argv[1:]
if kind == "parquet":
    print(json.dumps(parquet(path)))
else:
    with open(path, "rb") as file:
        print(json.dumps(globals()[kind](file.read())))

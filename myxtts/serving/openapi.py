"""The API's own description, OpenAPI 3.1: what `/openapi.json` answers, and what the tests hold the server to."""

from __future__ import annotations

from typing import Any

from myxtts.serving.collect_api import MOST_TEXT
from myxtts.serving.encoding import MEDIA_TYPES
from myxtts.serving.requests import MOST_CHARACTERS, MOST_SEED, RANGES, STREAM_FORMATS
from myxtts.serving.voices import MOST_NAME

Schema = dict[str, Any]

_STRING: Schema = {"type": "string"}
_REASONS = {
    400: "A field is missing or has a value that it cannot have.",
    401: "There is no API key, or a wrong one.",
    403: "The request comes from another site.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    422: "The text cannot be spoken, or the clip cannot be used.",
    429: "All places are taken; try again after Retry-After seconds.",
    503: "The server is stopping, or was too slow.",
}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: list[str] | None = None, **properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties) if required is None else required, "properties": properties}


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _media(description: str, *kinds: str) -> Schema:
    """Content that is no JSON; an event stream is one event after the other, and has no schema as a whole."""
    schemas: dict[str, Schema] = {kind: {} if kind == "text/event-stream" else {"type": "string"} for kind in kinds}
    return {"description": description, "content": {kind: {"schema": schema} for kind, schema in schemas.items()}}


def _operation(summary: str, answer: Schema, *errors: int, **more: Any) -> Schema:
    responses = {"200": answer}
    responses |= {str(status): _json(_REASONS[status], _ref("Error")) for status in sorted({401, 403, *errors})}
    return {"summary": summary, "responses": responses, **more}


def _path(*names: str) -> list[Schema]:
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _schemas() -> dict[str, Schema]:
    optional: dict[str, Schema] = {
        "instructions": {"type": ["string", "null"], "description": "Accepted and ignored."},
        "response_format": {"enum": [*MEDIA_TYPES, None], "default": "mp3"},
        "stream_format": {"enum": [*STREAM_FORMATS, None], "default": "audio"},
        "language": {
            "type": ["string", "null"],
            "maxLength": 32,
            "description": "As en, fa or en-GB; without it, guessed from the script of the text.",
        },
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": MOST_SEED, "default": 0},
        "timestamps": {"type": ["boolean", "null"], "description": "Send word timings in the event stream."},
    }
    optional |= {
        name: {"type": ["number", "null"], "minimum": low, "maximum": high} for name, (low, high) in RANGES.items()
    }
    name: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
    return {
        "Error": _object(
            error=_object(
                message=_STRING, type=_STRING, param={"type": ["string", "null"]}, code={"type": ["string", "null"]}
            )
        ),
        "SpeechRequest": _object(
            ["model", "input", "voice"],
            model={**name, "examples": ["tts-1"]},
            input={"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS, "examples": ["Hello there."]},
            voice={"anyOf": [name, _object(id=name)], "examples": ["alloy", {"id": "alloy"}]},
            **optional,
        ),
        "Voice": _object(
            id=_STRING,
            object=_STRING,
            name=_STRING,
            language={"type": ["string", "null"]},
            kind={"enum": ["built-in", "added"]},
            created_at={"type": "integer"},
        ),
        "NewVoice": _object(
            ["name", "consent", "audio_sample"],
            name={"type": "string", "minLength": 1, "maxLength": MOST_NAME},
            consent={"type": "string", "minLength": 1, "description": "That the speaker agrees, in words."},
            audio_sample={"type": "string", "contentMediaType": "application/octet-stream"},
            language=_STRING,
        ),
        "Timings": _object(
            id=_STRING,
            words=_list_of(_object(word=_STRING, start={"type": "number"}, end={"type": "number"}, source=_STRING)),
            seconds={"type": "number"},
            complete={"type": "boolean"},
        ),
        "Model": _object(id=_STRING, object=_STRING, created={"type": "integer"}, owned_by=_STRING),
        "Health": _object(status=_STRING, version=_STRING, model=_STRING, keys={"type": "boolean"}),
    }


def _audio_paths() -> dict[str, Schema]:
    audio = _media("The speech, while it is made.", *MEDIA_TYPES.values(), "text/event-stream")
    body = {"required": True, "content": {"application/json": {"schema": _ref("SpeechRequest")}}}
    form = {"required": True, "content": {"multipart/form-data": {"schema": _ref("NewVoice")}}}
    voices = _json("All voices.", _object(object=_STRING, voices=_list_of(_ref("Voice"))))
    deleted = _json("It is gone.", _object(id=_STRING, object=_STRING, deleted={"type": "boolean"}))
    return {
        "/v1/audio/speech": {
            "post": _operation("Speak a text.", audio, 400, 404, 408, 413, 422, 429, 503, requestBody=body)
        },
        "/v1/audio/speech/{id}/timings": {
            "get": _operation(
                "Word timings of a speech.", _json("The words.", _ref("Timings")), 404, parameters=_path("id")
            )
        },
        "/v1/audio/voices": {
            "get": _operation("List the voices.", voices),
            "post": _operation(
                "Add a voice from a clip, with consent.",
                _json("The new voice.", _ref("Voice")),
                400, 408, 413, 422, 429, 503,
                requestBody=form,
            ),
        },
        "/v1/audio/voices/{id}": {
            "delete": _operation("Delete an added voice.", deleted, 400, 404, 503, parameters=_path("id"))
        },
        "/v1/audio/voices/{id}/sample": {
            "get": _operation(
                "A sample of a voice.", _media("As it was recorded.", "audio/wav"), 404, parameters=_path("id")
            )
        },
    }  # fmt: skip


def _other_paths() -> dict[str, Schema]:
    run = _object(id=_STRING, modified_at={"type": "integer"})
    runs = _object(object=_STRING, served={"type": "boolean"}, data=_list_of(run))
    reviewed = _object(text={"type": "string", "maxLength": MOST_TEXT}, kept={"type": "boolean"})
    piece = _object(
        id=_STRING, text=_STRING, speaker=_STRING, language=_STRING, kept={"type": "boolean"},
        reason={"type": ["string", "null"]},
    )  # fmt: skip
    pieces = _object(object=_STRING, served={"type": "boolean"}, data=_list_of(piece))
    health = _operation("Whether it works; needs no key.", _json("It does.", _ref("Health")), security=[])
    health["responses"]["503"] = _json("It is stopping.", _ref("Health"))
    kinds = ("audio/wav", "audio/flac", "audio/ogg", "audio/mpeg")
    return {
        "/v1/audio/models": {
            "get": _operation("The models again.", _json("The models.", _object(models=_list_of(_ref("Model")))))
        },
        "/v1/models": {
            "get": _operation(
                "List the models.", _json("The models.", _object(object=_STRING, data=_list_of(_ref("Model"))))
            )
        },
        "/v1/models/{id}": {
            "get": _operation("One model.", _json("The model.", _ref("Model")), 404, parameters=_path("id"))
        },
        "/v1/runs": {"get": _operation("List the runs.", _json("The runs, the newest first.", runs))},
        "/v1/runs/{id}/events": {
            "get": _operation(
                "Follow a run.",
                _media("Its state whenever it changes.", "text/event-stream"),
                404, 429,
                parameters=_path("id"),
            )
        },
        "/v1/runs/{id}/samples/{number}": {
            "get": _operation(
                "A sample of a run.", _media("The audio.", *kinds), 404, parameters=_path("id", "number")
            )
        },
        "/v1/runs/{id}/report": {
            "get": _operation("A run's report.", _media("A page.", "text/html"), 404, parameters=_path("id"))
        },
        "/v1/collected": {"get": _operation("List the collected pieces.", _json("The pieces.", pieces), 503)},
        "/v1/collected/{id}": {
            "post": _operation(
                "Correct a piece, keep or drop it.", _json("The piece as it is now.", piece),
                400, 404, 408, 413, 503,
                parameters=_path("id"),
                requestBody={"required": True, "content": {"application/json": {"schema": reviewed}}},
            )
        },
        "/v1/collected/{id}/audio": {
            "get": _operation(
                "The sound of a piece.", _media("The audio.", "audio/wav"), 404, 503, parameters=_path("id")
            )
        },
        "/health": {"get": health},
        "/metrics": {"get": _operation("Counters for Prometheus.", _media("Text.", "text/plain"))},
        "/openapi.json": {
            "get": _operation("This description.", _json("OpenAPI 3.1.", {"type": "object"}), security=[])
        },
    }  # fmt: skip


def document(version: str) -> Schema:
    return {
        "openapi": "3.1.0",
        "info": {"title": "MyXTTS", "version": version, "description": "Speech in one voice model."},
        "paths": _audio_paths() | _other_paths(),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }

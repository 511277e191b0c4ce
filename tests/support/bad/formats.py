"""Formats of the answer that can't be enforced, and what whoever asks for one is told."""

from tests.support.bad.table import MISSING, STRANGE, TYPE, VALUE, Table, create, form, schema

NAMED = {"type": "json_schema", "name": "a", "schema": {}}

FORMATS: Table = {
    "a list for text": create("text", [], TYPE, "an object"),
    "an unknown key of text": create("text", {"style": "terse"}, STRANGE, "style", named="text.style"),
    "an unknown verbosity": create("text", {"verbosity": "huge"}, VALUE, "huge", named="text.verbosity"),
    "a format that is a word": form(TYPE, "", "an object", "json_object"),
    "a format without a type": form(MISSING, "type", "json_schema", {}),
    "a format of nobody": form(VALUE, "type", "yaml", {"type": "yaml"}),
    "a JSON object with a schema": form(STRANGE, "schema", "schema", {"type": "json_object", "schema": {}}),
    "a schema as in chat": form(STRANGE, "json_schema", "json_schema", {"type": "json_schema", "json_schema": NAMED}),
    "a schema without a name": form(MISSING, "name", "name", {"type": "json_schema", "schema": {}}),
    "a name without a schema": form(MISSING, "schema", "schema", {"type": "json_schema", "name": "a"}),
    "a schema with a wild name": form(VALUE, "name", "a b", {**NAMED, "name": "a b"}),
    "a schema that is a list": form(TYPE, "schema", "an object", {**NAMED, "schema": []}),
    "a schema that is a boolean": form(TYPE, "schema", "an object", {**NAMED, "schema": True}),
    "a number for strictness": form(TYPE, "strict", "a boolean", {**NAMED, "strict": 1}),
    "a schema of a book's length": form(VALUE, "", "262144", {**NAMED, "schema": {"title": "x" * 262_144}}),
}

SCHEMAS: Table = {
    "not": schema("not", "what is allowed", {"not": {"type": "string"}}),
    "if": schema("properties.a.if", "anyOf", {"properties": {"a": {"if": {}}}}),
    "dependentRequired": schema("dependentRequired", "anyOf", {"dependentRequired": {"a": ["b"]}}),
    "contains": schema("contains", "Leave it out", {"type": "array", "contains": {}}),
    "elements unique by a number": schema("uniqueItems", "a boolean", {"type": "array", "uniqueItems": 1}, VALUE),
    "a dynamic reference": schema("$dynamicRef", "$ref", {"$dynamicRef": "#a"}),
    "a reference to nothing": schema("$ref", "#/$defs/a", {"$ref": "#/$defs/a"}, VALUE),
    "a reference into the net": schema("$ref", "same schema", {"$ref": "https://example.org"}, VALUE),
    "a reference that is a number": schema("$ref", "same schema", {"$ref": 5}, VALUE),
    "a circular reference": schema("properties.a.$ref", "to itself", {"properties": {"a": {"$ref": "#/properties/a"}}}),
    "a reference to a list": schema("$ref", "same schema", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": []}}}, VALUE),
    "a definition that is a list": schema("$defs.a", "a schema", {"$ref": "#/$defs/a", "$defs": {"a": []}}, TYPE),
    "a reference beside a type": schema("type", "beside '$ref'", {"type": "object", "$ref": "#/$defs/a"}),
    "two schemas at once": schema("allOf", "Merge", {"allOf": [{"type": "object"}, {"type": "object"}]}),
    "schemas that may both match": schema("oneOf", "anyOf", {"oneOf": [{"type": "string"}, {"type": "string"}]}),
    "a choice with what may be anything": schema(
        "oneOf", "anyOf", {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "string"}], "$defs": {"a": True}}
    ),
    "a choice of nothing": schema("anyOf", "something in it", {"anyOf": []}, VALUE),
    "a choice that is no list": schema("anyOf", "a list", {"anyOf": {}}, VALUE),
    "false": schema("properties.a", "Nothing matches", {"properties": {"a": False}}),
    "a schema that is a number": schema("properties.a", "an object", {"properties": {"a": 5}}, TYPE),
    "an unknown type": schema("type", "float", {"type": "float"}, VALUE),
    "a type that is a number": schema("type", "5", {"type": 5}, VALUE),
    "types of nothing": schema("type", "[]", {"type": []}, VALUE),
    "keywords of two types": schema("type", "Name its type", {"minLength": 1, "minimum": 1}),
    "no values": schema("enum", "something in it", {"enum": []}, VALUE),
    "values of another type": schema("enum", "No value is left", {"type": "string", "enum": [1]}),
    "too many values": schema("enum", "2048", {"enum": list(range(2049))}, VALUE),
    "properties that are a list": schema("properties", "an object", {"properties": []}, VALUE),
    "required that is a text": schema("required", "a list", {"type": "object", "required": "a"}, VALUE),
    "forbidden": schema("required", "Declare it", {"type": "object", "required": ["a"], "additionalProperties": False}),
    "more required than allowed": schema(
        "maxProperties", "required", {"properties": {"a": {}, "b": {}}, "required": ["a", "b"], "maxProperties": 1}
    ),
    "names by a rule beside properties": schema(
        "patternProperties", "properties", {"properties": {"a": {}}, "patternProperties": {"b": {}}}
    ),
    "names by two rules": schema("patternProperties", "one pattern", {"patternProperties": {"a": {}, "b": {}}}),
    "names by a number": schema("propertyNames", "a schema", {"propertyNames": 5}, VALUE),
    "names by anything": schema("propertyNames", "a schema", {"propertyNames": True}, VALUE),
    "a pattern that looks around": schema("pattern", "Lookaround", {"pattern": "(?=a)"}, "invalid_pattern"),
    "a pattern that is too long": schema("pattern", "lengths", {"pattern": "a{6}", "maxLength": 5}, "invalid_pattern"),
    "a pattern that is a number": schema("pattern", "a string", {"pattern": 5}, TYPE),
    "a format beside a pattern": schema("format", "pattern", {"format": "date", "pattern": "^2"}),
    "a format that is a list": schema("format", "a string", {"type": "string", "format": []}, VALUE),
    "a length below nothing": schema("minLength", "-1", {"minLength": -1}, VALUE),
    "a length beyond reason": schema("maxLength", "integers from 0", {"maxLength": 10**18}, VALUE),
    "a length beyond numbers": schema("minLength", "integers from 0", {"minLength": 10**400}, VALUE),
    "half a length": schema("minLength", "0.5", {"minLength": 0.5}, VALUE),
    "a longest below the shortest": schema("maxLength", "less than", {"minLength": 5, "maxLength": 4}, VALUE),
    "a bound that is a text": schema("minimum", "numbers", {"minimum": "1"}, VALUE),
    "a bound beyond numbers": schema("minimum", "numbers", {"minimum": 10**400}, VALUE),
    "a bound of many decimals": schema("minimum", "decimals", {"type": "number", "minimum": 0.12345678}, VALUE),
    "nothing between the bounds": schema("", "between", {"type": "integer", "minimum": 2, "maximum": 1}),
    "multiples of true": schema("multipleOf", "above 0", {"type": "integer", "multipleOf": True}, VALUE),
    "multiples of nothing": schema("multipleOf", "above 0", {"type": "number", "multipleOf": 0}, VALUE),
    "multiples beyond the bounds": schema(
        "multipleOf", "No multiple", {"type": "number", "multipleOf": 5, "minimum": 1, "maximum": 2}
    ),
    "fewer elements than there must be": schema(
        "minItems", "At most 1", {"prefixItems": [{}], "items": False, "minItems": 2}
    ),
    "elements that are a number": schema("items", "an object", {"items": 5}, TYPE),
}

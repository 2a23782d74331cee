"""The forms that CloudWatch's agent and dashboards take, as far as they are used here.

Agent: translator/config/schema.json of https://github.com/aws/amazon-cloudwatch-agent. Dashboard:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html. Both take
more; what is not listed here is refused, so that a misspelt key is found.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_RETENTIONS = [
    -1,
    1,
    3,
    5,
    7,
    14,
    30,
    60,
    90,
    120,
    150,
    180,
    365,
    400,
    545,
    731,
    1096,
    1827,
    2192,
    2557,
    2922,
    3288,
    3653,
]


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _array(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def _text(longest: int = 4096) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": longest}


def _whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


_INTERVAL = _whole(1, 172_800)
_FLAG: Schema = {"type": "boolean"}

_DECLARATION = _object(
    {
        "source_labels": _array(_text()),
        "label_matcher": _text(),
        "label_separator": _text(),
        "metric_selectors": _array(_text()),
        "dimensions": _array(_array(_text())),
    }
)
_PROMETHEUS = _object(
    {
        "cluster_name": _text(),
        "log_group_name": _text(),
        "prometheus_config_path": _text(),
        "disable_metric_extraction": _FLAG,
        "emf_processor": _object(
            {
                "metric_declaration_dedup": _FLAG,
                "metric_namespace": _text(),
                "metric_unit": {"type": "object", "additionalProperties": _text(256)},
                "metric_declaration": _array(_DECLARATION),
            }
        ),
    }
)
_LOG_FILE = _object(
    {
        "file_path": _text(),
        "log_group_name": _text(512),
        "log_stream_name": _text(512),
        "timestamp_format": _text(),
        "timezone": {"enum": ["Local", "LOCAL", "UTC"]},
        "retention_in_days": {"enum": _RETENTIONS},
    },
    "file_path",
)
AGENT = _object(
    {
        "agent": _object({"metrics_collection_interval": _INTERVAL, "region": _text(64), "debug": _FLAG}),
        "logs": _object(
            {
                "force_flush_interval": _INTERVAL,
                "metrics_collected": _object({"prometheus": _PROMETHEUS}),
                "logs_collected": _object(
                    {"files": _object({"collect_list": _array(_LOG_FILE, minItems=1)}, "collect_list")}
                ),
            }
        ),
    }
)

_STATISTIC = {"enum": ["SampleCount", "Average", "Sum", "Minimum", "Maximum"]}
_COLOR: Schema = {"type": "string", "pattern": "^#[0-9a-f]{6}$"}
METRIC_OPTIONS = _object(
    {
        "id": {"type": "string", "pattern": "^[a-z][a-zA-Z0-9_]*$"},
        "expression": _text(1024),
        "label": _text(),
        "color": _COLOR,
        "stat": _STATISTIC,
        "period": _whole(1, 86_400),
        "visible": _FLAG,
        "yAxis": {"enum": ["left", "right"]},
    }
)
_AXIS = _object({"min": {"type": "number"}, "max": {"type": "number"}, "label": _text(), "showUnits": _FLAG})
METRIC_WIDGET = _object(
    {
        "title": _text(),
        "region": {"type": "string", "pattern": r"^[a-z]{2}(-[a-z]+)+-\d$"},
        "view": {"enum": ["timeSeries", "singleValue", "gauge", "bar", "pie"]},
        "stacked": _FLAG,
        "stat": _STATISTIC,
        "period": _whole(1, 86_400),
        "metrics": {"type": "array", "minItems": 1, "maxItems": 500, "items": {"type": "array", "minItems": 1}},
        "yAxis": _object({"left": _AXIS, "right": _AXIS}),
    },
    "metrics",
    "region",
)
LOG_WIDGET = _object(
    {
        "title": _text(),
        "region": METRIC_WIDGET["properties"]["region"],
        "view": {"enum": ["table", "timeSeries", "bar", "pie"]},
        "query": {"type": "string", "pattern": "^SOURCE '"},
    },
    "query",
    "region",
)
_PLACE = {"x": _whole(0, 23), "y": _whole(0, 10_000), "width": _whole(1, 24), "height": _whole(1, 1000)}
DASHBOARD = _object(
    {
        "start": {"type": "string", "pattern": r"^-P(T\d+[HM]|\d+[DWM])$"},
        "periodOverride": {"enum": ["auto", "inherit"]},
        "widgets": _array(
            {
                "oneOf": [
                    _object({"type": {"const": "metric"}, "properties": METRIC_WIDGET, **_PLACE}, "type", "properties"),
                    _object({"type": {"const": "log"}, "properties": LOG_WIDGET, **_PLACE}, "type", "properties"),
                ]
            },
            maxItems=500,
        ),
    },
    "widgets",
)

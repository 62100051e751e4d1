//! The hourly price of a GPU.

use std::borrow::Cow;
use std::fmt;

use ridgeline_analysis::devices::device_row::PriceRow;
use ridgeline_analysis::devices::device_spec::Price;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// The hourly price of a GPU: a number, or a table of `usd_per_hour` and `date`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HourlyPrice(Price);

impl HourlyPrice {
    pub(crate) fn price(&self) -> &Price {
        &self.0
    }

    fn of<E: de::Error>(usd_per_hour: f64, date: Option<String>) -> Result<HourlyPrice, E> {
        let row = PriceRow { usd_per_hour, date, source: None };
        row.into_price().map(HourlyPrice).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for HourlyPrice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PriceVisitor;
        impl<'de> de::Visitor<'de> for PriceVisitor {
            type Value = HourlyPrice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("US dollars, or a table of `usd_per_hour` and `date`")
            }
            fn visit_i64<E: de::Error>(self, usd: i64) -> Result<HourlyPrice, E> {
                HourlyPrice::of(usd as f64, None)
            }
            fn visit_f64<E: de::Error>(self, usd: f64) -> Result<HourlyPrice, E> {
                HourlyPrice::of(usd, None)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<HourlyPrice, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Dated {
                    usd_per_hour: f64,
                    date: Option<String>,
                }
                let dated = Dated::deserialize(de::value::MapAccessDeserializer::new(map))?;
                HourlyPrice::of(dated.usd_per_hour, dated.date)
            }
        }
        deserializer.deserialize_any(PriceVisitor)
    }
}

impl JsonSchema for HourlyPrice {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "HourlyPrice".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "number", "minimum": 0},
            {
                "type": "object",
                "properties": {
                    "usd_per_hour": {"type": "number", "minimum": 0},
                    "date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}
                },
                "required": ["usd_per_hour"],
                "additionalProperties": false
            }
        ]})
    }
}

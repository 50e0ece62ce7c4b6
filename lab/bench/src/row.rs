//! The rows of a result.

use serde::Serialize;
use serde_json::{Map, Value};
use weir_engine::measure::Spread;

/// One row of a result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row(Map<String, Value>);

impl Row {
    /// Adds a text field, which identifies the run.
    pub fn of(mut self, field: &str, value: &str) -> Self {
        self.0.insert(field.to_owned(), value.into());
        self
    }

    /// Adds a number without a spread.
    pub fn number(mut self, field: &str, value: f64) -> Self {
        self.0.insert(field.to_owned(), rounded(value));
        self
    }

    /// Adds a median and its extremes.
    pub fn spread(self, field: &str, spread: Spread) -> Self {
        self.number(field, spread.median)
            .number(&format!("{field}_min"), spread.min)
            .number(&format!("{field}_max"), spread.max)
    }

    /// The text fields, which identify the run.
    pub fn title(&self) -> String {
        let texts = self.0.values().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    }

    /// A text field.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).and_then(Value::as_str)
    }

    /// All fields with their names.
    pub fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter()
    }

    /// A numeric field.
    pub fn get(&self, field: &str) -> Option<f64> {
        self.0.get(field).and_then(Value::as_f64)
    }
}

/// Rounds to three decimals, which exceeds the precision of all measurements.
pub fn rounded(value: f64) -> Value {
    serde_json::Number::from_f64((value * 1000.0).round() / 1000.0).map_or(Value::Null, Value::Number)
}

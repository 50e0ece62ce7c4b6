//! What a scenario prints.

use serde::Serialize;
use serde_json::{Map, Value};
use weir_engine::measure::Spread;

/// One line of a result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row(Map<String, Value>);

impl Row {
    /// Says what was run.
    pub fn of(mut self, field: &str, value: &str) -> Self {
        self.0.insert(field.to_owned(), value.into());
        self
    }

    /// Adds a figure that has no spread.
    pub fn number(mut self, field: &str, value: f64) -> Self {
        self.0.insert(field.to_owned(), rounded(value));
        self
    }

    /// Adds a median with its spread.
    pub fn spread(self, field: &str, spread: Spread) -> Self {
        self.number(field, spread.median)
            .number(&format!("{field}_min"), spread.min)
            .number(&format!("{field}_max"), spread.max)
    }

    /// The text that says what was run.
    pub fn title(&self) -> String {
        let texts = self.0.values().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Something that was run.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).and_then(Value::as_str)
    }

    /// What was run and the figures, by name.
    pub fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter()
    }

    /// A figure.
    pub fn get(&self, field: &str) -> Option<f64> {
        self.0.get(field).and_then(Value::as_f64)
    }
}

/// Three decimals are more than any measurement here holds.
pub fn rounded(value: f64) -> Value {
    serde_json::Number::from_f64((value * 1000.0).round() / 1000.0).map_or(Value::Null, Value::Number)
}

//! Reads tables of P4 whose entries are constant.

use super::kinds::{Kind, fits};
use super::reader::Reader;

impl Reader {
    /// A table behind the word `table`.
    pub(super) fn table(&mut self) -> Result<(), String> {
        let name = self.tokens.name()?;
        self.all(&["{", "key", "=", "{"])?;
        let mut keys = Vec::new();
        while !self.tokens.take("}") {
            let is_computed = self.tokens.peek() == "(";
            let Kind::Bits(bits) = self.expression()? else { return Err(format!("a key of {name} has no width")) };
            keys.push(bits);
            self.all(&[":", "range"])?;
            if is_computed {
                self.all(&["@", "name", "(", "\""])?;
                self.tokens.name()?;
                self.all(&["\"", ")"])?;
            }
            self.tokens.expect(";")?;
        }
        self.all(&["actions", "=", "{", "NoAction", ";", "}"])?;
        self.all(&["const", "default_action", "=", "NoAction", ";", "const", "entries", "=", "{"])?;
        while !self.tokens.take("}") {
            self.entry(&keys)?;
            self.all(&[":", "NoAction", "(", ")", ";"])?;
        }
        self.tokens.expect("}")?;
        if !self.tables.insert(name.clone()) {
            return Err(format!("{name} is declared twice"));
        }
        Ok(())
    }

    /// Checks that the tables of a control that ends were applied.
    pub(super) fn end_tables(&mut self) -> Result<(), String> {
        match self.tables.iter().find(|table| !self.used.remove(*table)) {
            Some(table) => Err(format!("{table} is never applied")),
            None => Ok(()),
        }
    }

    fn all(&mut self, tokens: &[&str]) -> Result<(), String> {
        tokens.iter().try_for_each(|token| self.tokens.expect(token))
    }

    /// `3`, `3 .. 5`, or both halves `(3, _)`
    fn entry(&mut self, keys: &[u64]) -> Result<(), String> {
        if let [bits] = keys {
            return self.range(*bits);
        }
        for (index, bits) in keys.iter().enumerate() {
            self.tokens.expect(if index == 0 { "(" } else { "," })?;
            if !self.tokens.take("_") {
                self.range(*bits)?;
            }
        }
        self.tokens.expect(")")
    }

    fn range(&mut self, bits: u64) -> Result<(), String> {
        let start = self.tokens.number()?;
        let end = if self.tokens.take("..") { self.tokens.number()? } else { start };
        fits(end, bits)?;
        if start <= end { Ok(()) } else { Err(format!("{start} .. {end} is empty")) }
    }

    /// `set_0.apply().hit`
    pub(super) fn hit(&mut self) -> Result<Kind, String> {
        let name = self.tokens.name()?;
        self.all(&[".", "apply", "(", ")", ".", "hit"])?;
        self.used.insert(name);
        Ok(Kind::Bool)
    }
}

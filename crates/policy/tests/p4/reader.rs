//! A small reader of P4, for the subset that the compiler prints. It checks names, widths, states and calls.

use super::architecture;
use super::kinds::{Kind, combine, declare, fits};
use super::tokens::Tokens;
use std::collections::{BTreeMap, BTreeSet};

type Fields = BTreeMap<String, u64>;
/// Parameters of methods and actions: whether the callee writes them, and their bits.
type Parameters = Vec<(bool, u64)>;

/// What a program has declared so far.
pub struct Reader {
    pub(super) tokens: Tokens,
    /// All names outside of parsers and controls. They are in one space, with those of the architecture.
    globals: BTreeSet<String>,
    constants: Fields,
    headers: BTreeMap<String, Fields>,
    /// Headers by the name of their field in `headers_t`.
    fields: BTreeMap<String, String>,
    metadata: Fields,
    /// Constructor and methods of each type of extern objects.
    externs: BTreeMap<String, (Parameters, BTreeMap<String, Parameters>)>,
    objects: BTreeMap<String, String>,
    controls: BTreeSet<String>,
    /// Controls that were instantiated in the control that is read.
    instances: BTreeMap<String, String>,
    actions: BTreeMap<String, Parameters>,
    /// Parameters of the action that is read.
    parameters: Fields,
    /// Tables of the control that is read.
    pub(super) tables: BTreeSet<String>,
    /// Objects and tables that were called, and constants that were read.
    pub(super) used: BTreeSet<String>,
    /// The operator of the comparison that was read last, if the expression so far is only that.
    compared: String,
}

/// Reads a program. The error says what is wrong with it.
pub fn read(text: &str) -> Result<(), String> {
    let counter = (vec![], BTreeMap::from([("count".to_owned(), vec![(false, 32)])]));
    let mut reader = Reader {
        tokens: Tokens::of(text)?,
        globals: BTreeSet::new(),
        constants: Fields::new(),
        headers: BTreeMap::new(),
        fields: BTreeMap::new(),
        metadata: Fields::new(),
        externs: BTreeMap::from([("Counter".to_owned(), counter)]),
        objects: BTreeMap::new(),
        controls: BTreeSet::new(),
        instances: BTreeMap::new(),
        actions: BTreeMap::new(),
        parameters: Fields::new(),
        tables: BTreeSet::new(),
        used: BTreeSet::new(),
        compared: String::new(),
    };
    while !reader.tokens.peek().is_empty() {
        reader.declaration()?;
    }
    let mut declared = reader.objects.keys().chain(reader.constants.keys());
    let unused = declared.find(|name| !reader.used.contains(*name));
    unused.map_or(Ok(()), |name| Err(format!("{name} is never used")))
}

impl Reader {
    fn declaration(&mut self) -> Result<(), String> {
        match self.tokens.next()?.as_str() {
            "const" => {
                let bits = self.tokens.bits()?;
                let name = self.global()?;
                self.tokens.expect("=")?;
                let number = self.tokens.number()?;
                declare(&mut self.constants, name, bits)?;
                fits(number, bits)?;
                self.tokens.expect(";")
            }
            "extern" => self.external(),
            "header" => {
                let name = self.global()?;
                let fields = self.members()?;
                declare(&mut self.headers, name, fields)
            }
            "struct" => self.structure(),
            "parser" => self.parser(),
            "control" => self.control(),
            "Counter" => {
                architecture::COUNTER.iter().try_for_each(|token| self.tokens.expect(token))?;
                if !self.constants.contains_key("COUNTERS") {
                    return Err("COUNTERS is not declared".to_owned());
                }
                self.used.insert("COUNTERS".to_owned());
                let name = self.global()?;
                declare(&mut self.objects, name, "Counter".to_owned())?;
                self.tokens.expect(";")
            }
            kind if self.externs.contains_key(kind) => {
                let parameters = self.externs[kind].0.clone();
                self.arguments(kind, &parameters)?;
                let name = self.global()?;
                declare(&mut self.objects, name, kind.to_owned())?;
                self.tokens.expect(";")
            }
            "IngressPipeline" | "EgressPipeline" | "PSA_Switch" => {
                while !self.tokens.take(";") {
                    let token = self.tokens.next()?;
                    let is_own = ["Parser", "Control", "Egress", "Deparser"].iter().any(|own| token.ends_with(own));
                    if is_own && self.tokens.peek() == "(" && !self.controls.contains(&token) {
                        return Err(format!("{token} is not declared"));
                    }
                }
                Ok(())
            }
            other => Err(format!("{other} begins no declaration")),
        }
    }

    /// A name that is declared outside of parsers and controls.
    fn global(&mut self) -> Result<String, String> {
        let name = self.tokens.name()?;
        if architecture::declares(&name) {
            return Err(format!("{name} is a name of the architecture"));
        }
        match self.globals.insert(name.clone()) {
            true => Ok(name),
            false => Err(format!("{name} is declared twice")),
        }
    }

    /// The fields of a header or of the metadata.
    fn members(&mut self) -> Result<Fields, String> {
        let mut fields = Fields::new();
        self.tokens.expect("{")?;
        while !self.tokens.take("}") {
            let varies = self.tokens.peek() == "varbit";
            let bits = if varies {
                self.tokens.next()?;
                self.tokens.expect("<")?;
                let bits = self.tokens.number()?;
                self.tokens.expect(">")?;
                bits
            } else {
                self.tokens.bits()?
            };
            let name = self.tokens.name()?;
            if bits % 8 != 0 || (bits > 64 && !varies) {
                return Err(format!("{name} has {bits} bits"));
            }
            declare(&mut fields, name, bits)?;
            self.tokens.expect(";")?;
        }
        Ok(fields)
    }

    fn structure(&mut self) -> Result<(), String> {
        match self.global()?.as_str() {
            "headers_t" => {
                self.tokens.expect("{")?;
                while !self.tokens.take("}") {
                    let (kind, name) = (self.tokens.name()?, self.tokens.name()?);
                    if !self.headers.contains_key(&kind) {
                        return Err(format!("{kind} is not declared"));
                    }
                    declare(&mut self.fields, name, kind)?;
                    self.tokens.expect(";")?;
                }
                Ok(())
            }
            "metadata_t" => {
                self.metadata = self.members()?;
                Ok(())
            }
            _ => self.members().map(|_| ()),
        }
    }

    fn external(&mut self) -> Result<(), String> {
        let name = self.global()?;
        self.tokens.expect("{")?;
        self.tokens.expect(&name)?;
        let constructor = self.declared_parameters()?;
        self.tokens.expect(";")?;
        let mut methods = BTreeMap::new();
        while !self.tokens.take("}") {
            self.tokens.expect("void")?;
            let method = self.tokens.name()?;
            let parameters = self.declared_parameters()?;
            declare(&mut methods, method, parameters.into_iter().map(|(out, bits, _)| (out, bits)).collect())?;
            self.tokens.expect(";")?;
        }
        let constructor = constructor.into_iter().map(|(out, bits, _)| (out, bits)).collect();
        declare(&mut self.externs, name, (constructor, methods))
    }

    /// `(in bit<32> key, out bit<32> found)`
    fn declared_parameters(&mut self) -> Result<Vec<(bool, u64, String)>, String> {
        let mut parameters = Vec::new();
        self.tokens.expect("(")?;
        while !self.tokens.take(")") {
            let is_written = self.tokens.take("out");
            if !is_written {
                self.tokens.take("in");
            }
            parameters.push((is_written, self.tokens.bits()?, self.tokens.name()?));
            if self.tokens.peek() != ")" {
                self.tokens.expect(",")?;
            }
        }
        Ok(parameters)
    }

    /// The head of a parser or control: its name, and parameters of types that the architecture has.
    fn head(&mut self) -> Result<String, String> {
        let name = self.global()?;
        while !self.tokens.take("{") {
            self.tokens.next()?;
        }
        self.controls.insert(name.clone());
        Ok(name)
    }

    fn parser(&mut self) -> Result<(), String> {
        self.head()?;
        let mut states: BTreeMap<String, Vec<String>> = BTreeMap::new();
        while !self.tokens.take("}") {
            self.tokens.expect("state")?;
            let name = self.tokens.name()?;
            self.tokens.expect("{")?;
            while !self.tokens.take("transition") {
                self.statement()?;
            }
            let targets = self.transition()?;
            self.tokens.expect("}")?;
            declare(&mut states, name, targets)?;
        }
        let (mut open, mut reached) = (vec!["start"], BTreeSet::new());
        while let Some(name) = open.pop() {
            if name == "accept" || !reached.insert(name) {
                continue;
            }
            let targets = states.get(name).ok_or(format!("no state {name}"))?;
            open.extend(targets.iter().map(String::as_str));
        }
        let lost = states.keys().find(|name| !reached.contains(name.as_str()));
        lost.map_or(Ok(()), |name| Err(format!("state {name} is not reached")))
    }

    fn transition(&mut self) -> Result<Vec<String>, String> {
        if !self.tokens.take("select") {
            let target = self.tokens.name()?;
            self.tokens.expect(";")?;
            return Ok(vec![target]);
        }
        self.tokens.expect("(")?;
        let key = self.expression()?;
        self.tokens.expect(")")?;
        self.tokens.expect("{")?;
        let mut targets = Vec::new();
        while !self.tokens.take("}") {
            if !self.tokens.take("default") {
                match key {
                    Kind::Bool => self.tokens.expect("true")?,
                    Kind::Bits(bits) => fits(self.tokens.number()?, bits)?,
                    Kind::Number => return Err("a number is selected".to_owned()),
                }
            }
            self.tokens.expect(":")?;
            targets.push(self.tokens.name()?);
            self.tokens.expect(";")?;
        }
        Ok(targets)
    }

    fn control(&mut self) -> Result<(), String> {
        self.head()?;
        self.actions.clear();
        self.instances.clear();
        self.tables.clear();
        while !self.tokens.take("apply") {
            if self.tokens.take("table") {
                self.table()?;
                continue;
            }
            if !self.tokens.take("action") {
                let kind = self.tokens.name()?;
                self.tokens.expect("(")?;
                self.tokens.expect(")")?;
                let name = self.tokens.name()?;
                self.tokens.expect(";")?;
                if !self.controls.contains(&kind) {
                    return Err(format!("{kind} is not declared"));
                }
                declare(&mut self.instances, name, kind)?;
                continue;
            }
            let name = self.tokens.name()?;
            let parameters = self.declared_parameters()?;
            self.parameters = parameters.iter().map(|(_, bits, name)| (name.clone(), *bits)).collect();
            self.block()?;
            self.parameters.clear();
            declare(&mut self.actions, name, parameters.into_iter().map(|(_, bits, _)| (false, bits)).collect())?;
        }
        self.block()?;
        self.end_tables()?;
        self.tokens.expect("}")
    }

    fn block(&mut self) -> Result<(), String> {
        self.tokens.expect("{")?;
        while !self.tokens.take("}") {
            self.statement()?;
        }
        Ok(())
    }

    fn statement(&mut self) -> Result<(), String> {
        if self.tokens.take("if") {
            self.tokens.expect("(")?;
            let condition = self.expression()?;
            self.tokens.expect(")")?;
            return if condition == Kind::Bool { self.block() } else { Err("a condition is no bool".to_owned()) };
        }
        if self.tokens.take("return") {
            return self.tokens.expect(";");
        }
        match (self.tokens.peek(), self.tokens.ahead(1)) {
            ("packet", ".") => self.packet()?,
            ("send_to_port", _) => {
                while self.tokens.peek() != ";" {
                    self.tokens.next()?;
                }
            }
            ("hdr" | "meta", ".") => self.assignment()?,
            (_, "(") => {
                let name = self.tokens.name()?;
                let parameters = self.actions.get(&name).cloned().ok_or(format!("no action {name}"))?;
                self.arguments(&name, &parameters)?;
            }
            _ => self.method()?,
        }
        self.tokens.expect(";")
    }

    fn method(&mut self) -> Result<(), String> {
        let object = self.tokens.name()?;
        self.tokens.expect(".")?;
        if self.instances.contains_key(&object) {
            for token in ["apply", "(", "hdr", ",", "meta", ")"] {
                self.tokens.expect(token)?;
            }
            return Ok(());
        }
        let method = self.tokens.name()?;
        let kind = self.objects.get(&object).ok_or(format!("no object {object}"))?;
        let parameters = self.externs[kind].1.get(&method).cloned().ok_or(format!("{kind} has no {method}"))?;
        self.used.insert(object.clone());
        self.arguments(&format!("{object}.{method}"), &parameters)
    }

    /// `(a, b)` for some parameters.
    fn arguments(&mut self, callee: &str, parameters: &Parameters) -> Result<(), String> {
        self.tokens.expect("(")?;
        for (index, (is_written, bits)) in parameters.iter().enumerate() {
            if index > 0 {
                self.tokens.expect(",").map_err(|_| format!("{callee} has {} parameters", parameters.len()))?;
            }
            let is_place = matches!(self.tokens.peek(), "hdr" | "meta") && self.tokens.ahead(1) == ".";
            let kind = self.expression()?;
            if (*is_written && !is_place) || !matches!(kind, Kind::Number) && kind != Kind::Bits(*bits) {
                return Err(format!("argument {index} of {callee} is {kind:?}, not {bits} bits"));
            }
        }
        self.tokens.expect(")").map_err(|_| format!("{callee} has {} parameters", parameters.len()))
    }

    fn packet(&mut self) -> Result<(), String> {
        self.tokens.expect("packet")?;
        self.tokens.expect(".")?;
        let method = self.tokens.next()?;
        if method != "extract" && method != "emit" {
            return Err(format!("packets have no {method}"));
        }
        self.tokens.expect("(")?;
        self.header()?;
        if self.tokens.take(",") && self.expression()? != Kind::Bits(32) {
            return Err("a size has not 32 bits".to_owned());
        }
        self.tokens.expect(")")
    }

    /// `hdr.ipv4`
    fn header(&mut self) -> Result<String, String> {
        self.tokens.expect("hdr")?;
        self.tokens.expect(".")?;
        let name = self.tokens.name()?;
        self.fields.get(&name).cloned().ok_or(format!("no header {name}"))
    }

    fn place(&mut self) -> Result<u64, String> {
        if self.tokens.take("meta") {
            self.tokens.expect(".")?;
            let name = self.tokens.name()?;
            return self.metadata.get(&name).copied().ok_or(format!("no metadata {name}"));
        }
        let header = self.header()?;
        self.tokens.expect(".")?;
        let name = self.tokens.name()?;
        self.headers[&header].get(&name).copied().ok_or(format!("{header} has no {name}"))
    }

    fn assignment(&mut self) -> Result<(), String> {
        // `hdr.first = packet.lookahead<first_t>()`
        if self.tokens.peek() == "hdr" && self.tokens.ahead(3) == "=" {
            let kind = self.header()?;
            for token in ["=", "packet", ".", "lookahead", "<", &kind, ">", "(", ")"] {
                self.tokens.expect(token)?;
            }
            return Ok(());
        }
        let bits = self.place()?;
        self.tokens.expect("=")?;
        let number = self.tokens.peek().to_owned();
        match self.expression()? {
            Kind::Bits(own) if own == bits => Ok(()),
            Kind::Number => fits(number.parse().map_err(|_| format!("{number} is computed"))?, bits),
            other => Err(format!("{other:?} is assigned to {bits} bits")),
        }
    }

    pub(super) fn expression(&mut self) -> Result<Kind, String> {
        self.binary(0)
    }

    /// Operators of one level, from the weakest.
    fn binary(&mut self, level: usize) -> Result<Kind, String> {
        const LEVELS: [&[&str]; 7] =
            [&["||"], &["&&"], &["==", "!=", "<", "<=", ">", ">="], &["|"], &["&"], &["<<", ">>"], &["+", "-"]];
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while LEVELS[level].contains(&self.tokens.peek()) {
            let operator = self.tokens.next()?;
            architecture::stands_beside(&self.compared, &operator)?;
            let right = self.binary(level + 1)?;
            architecture::stands_beside(&self.compared, &operator)?;
            self.compared = if level == 2 { operator.clone() } else { String::new() };
            left = combine(&operator, left, right)
                .ok_or(format!("{left:?} {operator} {right:?} before {}", self.tokens.peek()))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Kind, String> {
        self.compared.clear();
        if self.tokens.take("!") {
            let kind = self.unary()?;
            self.compared.clear();
            return if kind == Kind::Bool { Ok(kind) } else { Err(format!("not of {kind:?}")) };
        }
        if self.tokens.take("(") {
            if self.tokens.peek() == "bit" {
                let bits = self.tokens.bits()?;
                self.tokens.expect(")")?;
                return match self.unary()? {
                    Kind::Bool => Err("a cast of a bool".to_owned()),
                    _ => Ok(Kind::Bits(bits)),
                };
            }
            let kind = self.expression()?;
            self.tokens.expect(")")?;
            return Ok(kind);
        }
        let token = self.tokens.peek().to_owned();
        if token.starts_with(|c: char| c.is_ascii_digit()) {
            return self.tokens.number().map(|_| Kind::Number);
        }
        if self.tokens.take("true") || self.tokens.take("false") {
            return Ok(Kind::Bool);
        }
        if matches!(token.as_str(), "hdr" | "meta") {
            return self.place().map(Kind::Bits);
        }
        if self.tables.contains(&token) {
            return self.hit();
        }
        self.tokens.next()?;
        let known = self.parameters.get(&token).or_else(|| self.constants.get(&token));
        self.used.insert(token.clone());
        known.map(|bits| Kind::Bits(*bits)).ok_or(format!("{token} is not declared"))
    }
}

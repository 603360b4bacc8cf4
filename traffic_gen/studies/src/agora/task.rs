//! The kinds of task of the network, and the texts that agents exchange for them.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use serde_json::{Map, Value, json};

/// A field of a task's input or output.
#[derive(Debug, Clone, Copy)]
pub struct TaskField {
    /// Its name.
    name: &'static str,
    /// What it is, with its unit or format.
    text: &'static str,
    /// What it can be.
    values: FieldValues,
}

/// What a field can be.
#[derive(Debug, Clone, Copy)]
enum FieldValues {
    /// One of these.
    Words(&'static [&'static str]),
    /// An integer of this range.
    Integer(i64, i64),
    /// A day of 2025.
    Day,
}

/// A kind of task.
#[derive(Debug, Clone, Copy)]
pub struct TaskKind {
    /// Its name, which a document for it bears too.
    pub name: &'static str,
    /// What is wanted, in a sentence.
    pub text: &'static str,
    /// The tool of the service that does it.
    tool: &'static str,
    input: &'static [TaskField],
    output: &'static [TaskField],
}

const fn words(name: &'static str, text: &'static str, words: &'static [&'static str]) -> TaskField {
    TaskField { name, text, values: FieldValues::Words(words) }
}

const fn integer(name: &'static str, text: &'static str, (from, to): (i64, i64)) -> TaskField {
    TaskField { name, text, values: FieldValues::Integer(from, to) }
}

const fn day(name: &'static str, text: &'static str) -> TaskField {
    TaskField { name, text, values: FieldValues::Day }
}

const CITIES: &[&str] = &["Oslo", "Lisbon", "Graz", "Bergen", "Turin", "Ghent", "Krakow", "Porto"];
const STREETS: &[&str] = &["12 Harbour Street", "4 Mill Lane", "88 Station Road", "31 Church Square"];
const NAMES: &[&str] = &["Ada Berg", "Jonas Keller", "Mina Rossi", "Piotr Nowak"];

/// The kinds of task of the network.
pub const TASKS: [TaskKind; 13] = [
    TaskKind {
        name: "Weather forecast",
        text: "Find out what the weather in a city will be on a given day.",
        tool: "forecast_of",
        input: &[words("city", "name of the city in English", CITIES), day("date", "day of the forecast, ISO 8601")],
        output: &[
            integer("temperature", "highest temperature of the day in degrees Celsius", (-10, 38)),
            integer("rain_probability", "probability of rain in percent", (0, 100)),
            words("sky", "state of the sky", &["clear", "cloudy", "overcast", "fog"]),
        ],
    },
    TaskKind {
        name: "Taxi booking",
        text: "Book a taxi from one address to another at a given time.",
        tool: "book_taxi",
        input: &[
            words("from", "address where the ride begins", STREETS),
            words("to", "address where the ride ends", STREETS),
            day("date", "day of the ride, ISO 8601"),
            integer("passengers", "number of passengers", (1, 6)),
        ],
        output: &[
            integer("fare", "fixed fare in euro cents", (900, 6_000)),
            words("plate", "number plate of the car", &["EV 21 440", "KS 90 112", "TR 55 731"]),
        ],
    },
    TaskKind {
        name: "Restaurant reservation",
        text: "Reserve a table in a restaurant for a number of guests on a given evening.",
        tool: "reserve_table",
        input: &[
            words("restaurant", "name of the restaurant", &["Alte Post", "Il Ponte", "Saltimbocca", "Fjordkroa"]),
            day("date", "day of the reservation, ISO 8601"),
            integer("hour", "hour of arrival, local time, 24-hour clock", (17, 22)),
            integer("guests", "number of guests", (1, 12)),
        ],
        output: &[
            words("status", "whether there is a table", &["reserved", "full", "closed"]),
            words("code", "code of the reservation", &["R-2281", "R-9020", "R-1177"]),
        ],
    },
    TaskKind {
        name: "Parcel shipping quote",
        text: "Ask what sending a parcel to a city costs and how long it takes.",
        tool: "shipping_quote",
        input: &[
            words("destination", "city of the recipient", CITIES),
            integer("weight", "weight of the parcel in grams", (100, 30_000)),
            integer("longest_side", "longest side of the parcel in millimetres", (100, 1_200)),
        ],
        output: &[
            integer("price", "price in euro cents, taxes included", (390, 4_900)),
            integer("days", "working days until delivery", (1, 9)),
        ],
    },
    TaskKind {
        name: "Currency conversion",
        text: "Convert an amount of one currency into another at the rate of a given day.",
        tool: "convert",
        input: &[
            integer("amount", "amount in hundredths of the first currency", (100, 900_000)),
            words("from", "first currency, ISO 4217", &["EUR", "USD", "NOK", "PLN"]),
            words("to", "second currency, ISO 4217", &["GBP", "CHF", "SEK", "CZK"]),
            day("date", "day of the rate, ISO 8601"),
        ],
        output: &[
            integer("converted", "amount in hundredths of the second currency", (100, 900_000)),
            integer("rate", "rate of the day in millionths", (40_000, 25_000_000)),
        ],
    },
    TaskKind {
        name: "Train connection",
        text: "Find the first train from one city to another after a given hour of a day.",
        tool: "next_train",
        input: &[
            words("from", "city of departure", CITIES),
            words("to", "city of arrival", CITIES),
            day("date", "day of departure, ISO 8601"),
            integer("after_hour", "earliest hour of departure, local time, 24-hour clock", (0, 22)),
        ],
        output: &[
            words("departure", "time of departure, HH:MM", &["07:12", "11:48", "16:05", "21:30"]),
            integer("minutes", "duration in minutes", (35, 900)),
            integer("changes", "number of changes", (0, 4)),
        ],
    },
    TaskKind {
        name: "Medicine in stock",
        text: "Ask whether pharmacies of a city have a medicine, and where the nearest is.",
        tool: "stock_of",
        input: &[
            words("medicine", "international non-proprietary name", &["ibuprofen", "cetirizine", "omeprazole"]),
            integer("strength", "strength in milligrams", (5, 800)),
            words("city", "city of the pharmacy", CITIES),
        ],
        output: &[
            words("address", "address of the nearest pharmacy that has it", STREETS),
            integer("packs", "number of packs in stock", (0, 40)),
        ],
    },
    TaskKind {
        name: "Library loan",
        text: "Ask whether a library lends a book now, and until when.",
        tool: "loan_of",
        input: &[
            words("isbn", "ISBN-13 of the book", &["9780140449136", "9780262033848", "9783518188026"]),
            words("reader", "name of the reader", NAMES),
        ],
        output: &[
            words("status", "state of the copy", &["available", "on loan", "reference only"]),
            day("due", "day on which a loan that begins now ends, ISO 8601"),
        ],
    },
    TaskKind {
        name: "Hotel room search",
        text: "Find a hotel room in a city for some nights below a price.",
        tool: "find_room",
        input: &[
            words("city", "city of the hotel", CITIES),
            day("arrival", "day of arrival, ISO 8601"),
            integer("nights", "number of nights", (1, 14)),
            integer("price_max", "highest price of a night in euro cents", (5_000, 40_000)),
        ],
        output: &[
            words("hotel", "name of the hotel", &["Park Inn", "Zur Sonne", "Grand Central", "none"]),
            integer("price", "price of a night in euro cents", (5_000, 40_000)),
            words("cancellation", "until when it can be cancelled", &["24 h before", "7 days before", "never"]),
        ],
    },
    TaskKind {
        name: "Energy tariff",
        text: "Find the cheapest electricity tariff for a household of a city.",
        tool: "cheapest_tariff",
        input: &[
            words("city", "city of the household", CITIES),
            integer("consumption", "consumption of a year in kilowatt hours", (900, 9_000)),
        ],
        output: &[
            words("tariff", "name of the tariff", &["Fix 12", "Flex", "Green 24"]),
            integer("price", "price of a year in euro cents", (30_000, 400_000)),
        ],
    },
    TaskKind {
        name: "Package tracking",
        text: "Find out where a package is and when it will be delivered.",
        tool: "track",
        input: &[words("number", "number of the package", &["LX100200300NO", "LX772100934PT", "LX550012873AT"])],
        output: &[
            words("state", "state of the package", &["announced", "in transit", "in delivery", "delivered"]),
            words("city", "city where it was seen last", CITIES),
            day("expected", "day of delivery, ISO 8601"),
        ],
    },
    TaskKind {
        name: "Appointment with a doctor",
        text: "Get the first free appointment with a doctor of a speciality in a city.",
        tool: "first_appointment",
        input: &[
            words("speciality", "speciality of the doctor", &["dermatology", "cardiology", "paediatrics"]),
            words("city", "city of the practice", CITIES),
            words("patient", "name of the patient", NAMES),
            day("not_before", "earliest day, ISO 8601"),
        ],
        output: &[
            day("date", "day of the appointment, ISO 8601"),
            words("time", "time of the appointment, HH:MM", &["08:20", "10:40", "14:00"]),
            words("address", "address of the practice", STREETS),
        ],
    },
    TaskKind {
        name: "Translation quote",
        text: "Ask what the translation of a text costs and when it is done.",
        tool: "translation_quote",
        input: &[
            words("from", "language of the text, ISO 639-1", &["de", "no", "pt", "pl"]),
            words("to", "language of the translation, ISO 639-1", &["en", "fr", "it"]),
            integer("words", "length of the text in words", (100, 20_000)),
        ],
        output: &[
            integer("price", "price in euro cents, taxes included", (2_000, 400_000)),
            day("ready", "day of delivery, ISO 8601"),
        ],
    },
];

impl TaskField {
    fn drawn(&self, random: &mut ChaCha12Rng) -> Value {
        match self.values {
            FieldValues::Words(words) => words.get(random.random_range(0..words.len())).copied().into(),
            FieldValues::Integer(from, to) => random.random_range(from..=to).into(),
            FieldValues::Day => {
                format!("2025-{:02}-{:02}", random.random_range(1..=12), random.random_range(1..=28)).into()
            }
        }
    }

    fn schema(&self) -> Value {
        let kind = if matches!(self.values, FieldValues::Integer(..)) { "integer" } else { "string" };
        json!({"type": kind, "description": self.text})
    }
}

fn object(fields: &[TaskField], of: impl FnMut(&TaskField) -> Value) -> Map<String, Value> {
    fields.iter().map(|field| field.name.to_owned()).zip(fields.iter().map(of)).collect()
}

fn schema(fields: &[TaskField]) -> Value {
    let required: Vec<&str> = fields.iter().map(|field| field.name).collect();
    json!({"type": "object", "properties": object(fields, TaskField::schema), "required": required})
}

/// One task: its data, and what the service finds out.
#[derive(Debug, Clone)]
pub struct TaskData {
    input: Map<String, Value>,
    output: Map<String, Value>,
}

impl TaskKind {
    /// Data of one task of this kind.
    pub fn drawn(&self, random: &mut ChaCha12Rng) -> TaskData {
        let input = object(self.input, |field| field.drawn(random));
        let output = object(self.output, |field| field.drawn(random));
        TaskData { input, output }
    }

    /// The task as an initiator's model is told of it, without its data.
    #[must_use]
    pub fn described(&self) -> String {
        let (text, input, output) = (self.text, schema(self.input), schema(self.output));
        format!("Task: {text}\nInput schema: {input:#}\nOutput schema: {output:#}\n")
    }

    /// The tool as a responder's model is told of it.
    #[must_use]
    pub fn tool_described(&self) -> String {
        let function = json!({
            "name": self.tool, "description": self.text, "parameters": schema(self.input), "returns": schema(self.output),
        });
        format!("Tool: {function:#}\n")
    }

    /// What an initiator writes to a responder.
    #[must_use]
    pub fn asked(&self, data: &TaskData) -> String {
        let mut given = Vec::new();
        for field in self.input {
            given.push(format!("- {} ({}): {}", field.name, field.text, shown(data.input.get(field.name))));
        }
        let wanted: Vec<&str> = self.output.iter().map(|field| field.text).collect();
        format!(
            "Hello! I would like to ask for your help with the following: {}\n\nHere is what you need to know:\n{}\n\nPlease \
             tell me: {}. If anything is missing or not clear, please ask. Thank you!",
            self.text,
            given.join("\n"),
            wanted.join("; ")
        )
    }

    /// What a responder writes back.
    #[must_use]
    pub fn answered(&self, data: &TaskData) -> String {
        let mut found = Vec::new();
        for field in self.output {
            found.push(format!("- {}: {}", field.text, shown(data.output.get(field.name))));
        }
        format!(
            "Thank you for your request. Here is what I found:\n{}\n\nPlease let me know if you need more.",
            found.join("\n")
        )
    }

    /// The call of the tool.
    #[must_use]
    pub fn tool_call(&self, data: &TaskData) -> String {
        json!({"name": self.tool, "arguments": data.input}).to_string()
    }

    /// The document that two agents agree on, which names them.
    #[must_use]
    pub fn document(&self, initiator: &str, responder: &str) -> String {
        let members = |fields: &[TaskField]| {
            let line = |field: &TaskField| {
                let kind = if matches!(field.values, FieldValues::Integer(..)) { "integer" } else { "text" };
                format!("- `{}` ({kind}): {}\n", field.name, field.text)
            };
            fields.iter().map(line).collect::<String>()
        };
        let example = |fields: &[TaskField]| Value::Object(object(fields, TaskField::example));
        let (name, text) = (self.name, self.text);
        format!(
            "---\nname: {name}\ndescription: {text}\nmultiround: false\n---\n\nAgreed by {initiator} and {responder}.\n\n# Request\n\n\
             The body is a JSON object with exactly these members:\n\n{}\nExample:\n\n{}\n\n# Answer\n\nThe body is a JSON object \
             with exactly these members:\n\n{}\nExample:\n\n{}\n\n# Errors\n\nA request that is no such object, lacks a member or \
             has one of another type is answered by a JSON object with the one member `error` (text), which names the member. \
             If the service cannot find an answer, every member of the answer is null. Nothing else is sent.\n",
            members(self.input),
            example(self.input),
            members(self.output),
            example(self.output)
        )
    }

    /// What a model says of a document for the task, field by field, with its verdict at the end.
    #[must_use]
    pub fn considered(&self, suits: bool) -> String {
        let found = if suits { "has it under the same name and of the same type" } else { "says nothing of it" };
        let considered =
            [self.input, self.output].map(|fields| lines(fields, |name| format!("- {name}: the document {found}.\n")));
        format!("{}{}", considered.concat(), if suits { "YES" } else { "NO" })
    }

    /// The routine of an initiator.
    #[must_use]
    pub fn initiator_routine(&self) -> String {
        let sent = lines(self.input, |name| format!("        \"{name}\": task_data[\"{name}\"],\n"));
        let read = lines(self.output, |name| format!("        \"{name}\": answer[\"{name}\"],\n"));
        format!(
            "import json\n\n\ndef send_query(task_data: dict) -> dict:\n    request = {{\n{sent}    }}\n    answer = \
             json.loads(send_to_server(json.dumps(request)))\n    if not isinstance(answer, dict):\n        raise ValueError(\"the \
             answer is no object\")\n    if \"error\" in answer:\n        raise ValueError(answer[\"error\"])\n    return {{\n{read}    }}\n"
        )
    }

    /// The routine of a responder.
    #[must_use]
    pub fn responder_routine(&self) -> String {
        let checks = self.input.iter().map(|field| {
            let (name, kind) =
                (field.name, if matches!(field.values, FieldValues::Integer(..)) { "int" } else { "str" });
            format!("    if not isinstance(request.get(\"{name}\"), {kind}):\n        return json.dumps({{\"error\": \"{name}\"}})\n")
        });
        let arguments = lines(self.input, |name| format!("{name}=request[\"{name}\"], "));
        let answer = lines(self.output, |name| format!("        \"{name}\": found.get(\"{name}\"),\n"));
        let (tool, checks) = (self.tool, checks.collect::<String>());
        format!(
            "import json\n\n\ndef reply(query: str) -> str:\n    try:\n        request = json.loads(query)\n    except ValueError:\n        \
             return json.dumps({{\"error\": \"the body\"}})\n    if not isinstance(request, dict):\n        return \
             json.dumps({{\"error\": \"the body\"}})\n{checks}    found = {tool}({})\n    return json.dumps({{\n{answer}    }})\n",
            arguments.trim_end_matches(", ")
        )
    }
}

impl TaskField {
    fn example(&self) -> Value {
        match self.values {
            FieldValues::Words(words) => words.first().copied().into(),
            FieldValues::Integer(from, _) => from.into(),
            FieldValues::Day => "2025-03-01".into(),
        }
    }
}

impl TaskData {
    /// The data as they are in a task.
    #[must_use]
    pub fn input(&self) -> String {
        json!(self.input).to_string()
    }

    /// What the initiator delivers in the end.
    #[must_use]
    pub fn output(&self) -> String {
        json!(self.output).to_string()
    }
}

fn lines(fields: &[TaskField], line: impl Fn(&str) -> String) -> String {
    fields.iter().map(|field| line(field.name)).collect()
}

fn shown(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    }
}

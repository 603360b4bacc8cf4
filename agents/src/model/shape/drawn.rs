//! Answers forced by a grammar: what a schema admits, drawn from bytes, and what that comes to.

use serde_json::Value;

use crate::model::{AnswerForm, Misfit, Question};

/// Bytes without an end, of a seed.
struct Bytes(u64);

impl Bytes {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = retry::hash("bytes", self.0);
        self.0 % end.max(1)
    }

    fn of<'v>(&mut self, values: &'v [Value]) -> &'v Value {
        &values[usize::try_from(self.below(values.len() as u64)).unwrap()]
    }

    /// A JSON text that a schema admits; numbers have at most six digits after the point, which no schema can say.
    fn write(&mut self, schema: &Value) -> String {
        if let Some(alternatives) = schema["anyOf"].as_array() {
            let one = self.of(alternatives).clone();
            return self.write(&one);
        }
        if let Some(values) = schema["enum"].as_array() {
            return self.of(values).to_string();
        }
        match schema["type"].as_str().unwrap() {
            "object" => {
                let properties = schema["properties"].as_object().unwrap();
                assert_eq!(schema["additionalProperties"], false);
                assert_eq!(schema["required"].as_array().unwrap().len(), properties.len(), "{schema}");
                let members = properties.iter().map(|(name, schema)| format!("{name:?}:{}", self.write(schema)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }
            "array" => {
                let count = self.below(schema["maxItems"].as_u64().unwrap().min(3) + 1);
                let items: Vec<String> = (0..count).map(|_| self.write(&schema["items"])).collect();
                format!("[{}]", items.join(","))
            }
            "integer" => {
                let (min, max) = (schema["minimum"].as_i64().unwrap(), schema["maximum"].as_i64().unwrap());
                (min + i64::try_from(self.below(max.abs_diff(min) + 1)).unwrap()).to_string()
            }
            "number" => {
                let whole = self.below(schema["maximum"].as_f64().unwrap() as u64);
                let digits: String = (0..self.below(7)).map(|_| char::from(b'0' + self.below(10) as u8)).collect();
                if digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
            }
            "string" => {
                let (min, max) = (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64().unwrap());
                let letters = ['a', 'Z', '7', '"', '\\', 'é', '你', '🙂'];
                let count = min + self.below(max.min(12) - min + 1);
                let text: String = (0..count).map(|_| letters[self.below(8) as usize]).collect();
                Value::from(text).to_string()
            }
            "null" => "null".to_owned(),
            other => panic!("no schema has {other}"),
        }
    }
}

/// So many answers that the schema of a question admits, and what each comes to.
pub fn drawn<Q: Question>(question: &Q, count: u64) -> Vec<(Value, Result<Q::Choice, Misfit>)> {
    let shape = question.shape();
    let schema: Value = serde_json::from_str(&shape.to_schema(AnswerForm::Alternatives)).unwrap();
    let draw = |seed| {
        let text = Bytes(seed).write(&schema);
        let said = schemas::strict_json::parse_within(text.as_bytes(), 1 << 20).unwrap();
        let judged = shape.read(&said, &text).and_then(|answer| question.judge(&answer));
        (said, judged)
    };
    (0..count).map(draw).collect()
}

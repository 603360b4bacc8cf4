use proptest::prelude::*;
use serde_json::json;

use super::*;

impl AnswerShape {
    /// Reads a value as its text.
    pub(crate) fn check(&self, said: &Value) -> Result<Value, Misfit> {
        self.read(said, &said.to_string())
    }
}

fn schema(shape: &AnswerShape, form: AnswerForm) -> Value {
    serde_json::from_str(&shape.to_schema(form)).unwrap()
}

fn answer() -> AnswerShape {
    let terms = AnswerShape::Object(vec![
        ("price".to_owned(), AnswerShape::Integer { min: 0, max: 1000 }),
        ("handover".to_owned(), AnswerShape::one_of(&["pickup".to_owned(), "courier".to_owned()])),
    ]);
    AnswerShape::Object(vec![
        ("act".to_owned(), AnswerShape::one_of(&["offer".to_owned(), "refuse".to_owned()])),
        ("terms".to_owned(), AnswerShape::Nullable(Box::new(terms))),
        (
            "list".to_owned(),
            AnswerShape::List {
                item: Box::new(AnswerShape::Integer { min: -INTEGER_MAX, max: INTEGER_MAX }),
                len_max: 2,
            },
        ),
        ("reason".to_owned(), AnswerShape::Nullable(Box::new(AnswerShape::Text { len_min: 1, len_max: 3 }))),
    ])
}

#[test]
fn a_misfit_is_named_by_pointer_and_by_what_would_fit() {
    let good = json!({"act": "offer", "terms": {"price": 5.0, "handover": "pickup"}, "list": [], "reason": null});
    assert_eq!(answer().check(&good).unwrap()["terms"]["price"].as_i64(), Some(5), "an integer, however it is written");
    for (pointer, value, at, expected) in [
        ("/act", json!("award"), "/act", "one of: offer, refuse"),
        ("/terms/price", json!("5"), "/terms/price", "an integer from 0 to 1000"),
        ("/terms/price", json!(1001), "/terms/price", "an integer from 0 to 1000"),
        ("/terms/price", json!(5.5), "/terms/price", "an integer from 0 to 1000"),
        ("/terms", json!([]), "/terms", "an object with the members price, handover, or null"),
        ("/reason", json!("long"), "/reason", "a text of 1 to 3 characters, or null"),
        ("/list", json!([1, 2, 3]), "/list", "a list of at most 2 items"),
        ("/list", json!([1, "2"]), "/list/1", "an integer from -9007199254740991 to 9007199254740991"),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        assert_eq!(answer().check(&bad), Err(Misfit::schema(at, expected)), "{bad}");
    }
    let mut missing = good.clone();
    missing.as_object_mut().unwrap().remove("terms");
    assert_eq!(answer().check(&missing).unwrap_err().pointer, "/terms");
    let mut more = good;
    more["canary"] = json!(1);
    let misfit = answer().check(&more).unwrap_err();
    assert!(misfit.expected.ends_with("and no other") && !misfit.expected.contains("canary"), "{misfit:?}");
}

#[test]
fn a_remark_that_is_missing_or_too_long_costs_no_answer() {
    let act = ("act".to_owned(), AnswerShape::one_of(&["offer".to_owned()]));
    let shape = AnswerShape::Object(vec![act, ("reason".to_owned(), AnswerShape::Remark { len_max: 3 })]);
    for said in [json!({}), json!({"reason": null}), json!({"reason": "long"}), json!({"reason": ["a", 1]})] {
        let mut answer = said;
        assert_eq!(shape.check(&answer).unwrap_err().pointer, "/act");
        answer["act"] = json!("offer");
        assert!(shape.check(&answer).is_ok(), "{answer}");
    }
    let reason = json!({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]});
    let schema = schema(&shape, AnswerForm::Alternatives);
    assert_eq!((&schema["properties"]["reason"], &schema["required"]), (&reason, &json!(["act", "reason"])));
}

/// An offer of a price, or a refusal.
fn acts() -> AnswerShape {
    let terms = AnswerShape::members([("price", AnswerShape::Decimal { decimals: 6 })]);
    AnswerShape::Acts(vec![
        AnswerShape::act("act", "offer", [("terms", AnswerShape::Object(terms)), AnswerShape::reason()]),
        AnswerShape::act("act", "refuse", [AnswerShape::reason()]),
    ])
}

#[test]
fn acts_are_alternatives_in_their_order_or_one_object_without_bounds() {
    let terms = |price: &str| {
        format!(
            r#"{{"type":"object","properties":{{"price":{price}}},"required":["price"],"additionalProperties":false}}"#
        )
    };
    let act = |name: &str| format!(r#"{{"type":"object","properties":{{"act":{{"type":"string","enum":["{name}"]}}"#);
    let reason = r#""reason":{"anyOf":[{"type":"string","maxLength":120},{"type":"null"}]}}"#;
    let offer = format!(
        r#"{},"terms":{},{reason},"required":["act","terms","reason"],"additionalProperties":false}}"#,
        act("offer"),
        terms(r#"{"type":"number","minimum":0,"maximum":9007199254.740991}"#)
    );
    let refuse = format!(r#"{},{reason},"required":["act","reason"],"additionalProperties":false}}"#, act("refuse"));
    let whole = |answer: &str| {
        format!(
            r#"{{"type":"object","properties":{{"answer":{answer}}},"required":["answer"],"additionalProperties":false}}"#
        )
    };
    let alternatives = acts().to_schema(AnswerForm::Alternatives);
    assert_eq!(alternatives, whole(&format!(r#"{{"anyOf":[{offer},{refuse}]}}"#)));
    let AnswerShape::Acts(all) = acts() else { panic!("these are acts") };
    let sole = AnswerShape::Acts(all[1..].to_vec());
    assert_eq!(sole.to_schema(AnswerForm::Alternatives), whole(&refuse), "no choice of one");
    let flat = format!(
        r#"{},"terms":{{"anyOf":[{},{{"type":"null"}}]}},"reason":{{"anyOf":[{{"type":"string"}},{{"type":"null"}}]}}}},"required":["act","terms","reason"],"additionalProperties":false}}"#,
        act(r#"offer","refuse"#),
        terms(r#"{"type":"number"}"#)
    );
    assert_eq!(acts().to_schema(AnswerForm::JsonSchema), flat);
    assert!(acts().to_schema(AnswerForm::Plain).contains(r#""maxLength":120"#), "who reads it is told the bounds");
}

#[test]
fn an_act_counts_in_its_envelope_and_without_it_and_a_misfit_lies_where_it_was_asked_for() {
    let offer = json!({"act": "offer", "terms": {"price": 1.5}, "reason": null});
    for said in [json!({"answer": offer}), offer.clone(), json!({"act": "offer", "terms": {"price": "1.5"}})] {
        let read = acts().check(&said);
        assert_eq!(
            read.map(|read| read["terms"]["price"].as_i64()).ok(),
            (!said.to_string().contains("\"1.5\"")).then_some(Some(1_500_000))
        );
    }
    let empty = json!({"act": "refuse", "terms": []});
    for refusal in
        [json!({"act": "refuse", "terms": null, "reason": null}), json!({"answer": {"act": "refuse"}}), empty]
    {
        assert_eq!(acts().check(&refusal).unwrap()["act"], "refuse", "{refusal}");
    }
    for (said, pointer, expected) in [
        (json!({"answer": {"act": "award"}}), "/act", "one of: offer, refuse"),
        (json!({"act": "offer", "terms": null}), "/terms", "an object with the members price"),
        (json!({"act": "offer"}), "/terms", "an object with the members price"),
        (json!({"act": "refuse", "terms": {}}), "/terms", "null, or nothing: this act has none"),
        (json!({"act": "refuse", "more": 1}), "", "an object with the members act, reason and no other"),
        (json!([offer]), "", "an object with the members act, terms, reason"),
        (json!({"answer": [offer]}), "", "an object with the members act, terms, reason and no other"),
        (
            json!({"act": "offer", "terms": {"price": 0.123_456_7}}),
            "/terms/price",
            "a number with at most 6 digits after the point",
        ),
    ] {
        let misfit = acts().check(&said).unwrap_err();
        assert_eq!((&*misfit.pointer, &*misfit.expected), (pointer, expected), "{said}");
        assert_eq!(acts().placed(AnswerForm::JsonSchema, misfit.clone()), misfit);
        assert_eq!(acts().placed(AnswerForm::Alternatives, misfit).pointer, format!("/answer{pointer}"));
    }
}

#[test]
fn a_decimal_is_read_by_its_digits_and_never_rounded() {
    for (text, decimals, expected) in [
        ("85.123456", 6, Some(85_123_456)),
        ("85.1234560000", 6, Some(85_123_456)),
        ("85.1234567", 6, None),
        ("0.12345600000000000000001", 6, None),
        ("9007199254.740991", 6, Some(INTEGER_MAX)),
        ("9007199254.740992", 6, None),
        ("8.5e1", 6, Some(85_000_000)),
        ("850E-1", 2, Some(8500)),
        ("1e-6", 6, Some(1)),
        ("1e-7", 6, None),
        ("-1.5", 1, Some(-15)),
        ("0", 6, Some(0)),
        ("-0.000", 0, Some(0)),
        ("0e99999999999999999999", 6, Some(0)),
        ("1e99999999999999999999", 6, None),
        ("1e18", 6, None),
        ("5", 0, Some(5)),
        ("5.5", 0, None),
        ("", 6, None),
    ] {
        assert_eq!(units(text, decimals), expected, "{text}");
    }
    for (number, decimals, expected) in [
        (85_000_000, 6, "85"),
        (1, 6, "0.000001"),
        (-1_500_000, 6, "-1.5"),
        (100, 0, "100"),
        (0, 2, "0"),
        (1050, 2, "10.5"),
    ] {
        assert_eq!(decimal(number, decimals), expected);
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (-5_i64..2000).prop_map(Value::from),
        (-5_i32..2000).prop_map(|half| json!(f64::from(half) / 2.0)),
        "[a-z]{0,4}".prop_map(Value::from),
        prop_oneof![Just("offer"), Just("refuse"), Just("pickup")].prop_map(Value::from),
        prop::collection::vec(0_i64..3, 0..4).prop_map(Value::from),
    ];
    let terms =
        (leaf.clone(), leaf.clone()).prop_map(|(price, handover)| json!({"price": price, "handover": handover}));
    let any = prop_oneof![leaf.clone(), terms];
    let members = [("act", leaf.clone().boxed()), ("terms", any.boxed()), ("list", leaf.clone().boxed())];
    let [act, terms, list] = members.map(|(_, strategy)| strategy);
    (act, terms, list, leaf, 0..6).prop_map(|(act, terms, list, reason, drop)| {
        let mut whole = json!({"act": act, "terms": terms, "list": list, "reason": reason});
        match drop {
            0 => drop_member(&mut whole, "reason"),
            1 => whole["more"] = json!(1),
            _ => {}
        }
        whole
    })
}

fn drop_member(value: &mut Value, name: &str) {
    value.as_object_mut().unwrap().remove(name);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_check_accepts_what_a_validator_of_json_schema_accepts(value in value()) {
        let validator = jsonschema::draft202012::new(&schema(&answer(), AnswerForm::Alternatives)).unwrap();
        prop_assert_eq!(answer().check(&value).is_ok(), validator.is_valid(&value), "{}", value);
    }

    #[test]
    fn a_decimal_comes_back_as_the_units_it_was(number in -INTEGER_MAX..=INTEGER_MAX, decimals in 0..=DECIMALS_MAX, zeros in 0_usize..9) {
        let text = decimal(number, decimals);
        prop_assert_eq!(units(&text, decimals), Some(number), "{}", text);
        let long = if text.contains('.') { format!("{text}{}", "0".repeat(zeros)) } else { text };
        prop_assert_eq!(units(&long, decimals), Some(number), "{}", long);
        let beyond = if long.contains('.') { format!("{long}{}1", "0".repeat(6)) } else { format!("{long}.0000001") };
        prop_assert_eq!(units(&beyond, decimals), None, "{}", beyond);
    }
}

#[test]
fn an_integer_of_an_answer_is_read_by_its_digits() {
    let shape = AnswerShape::Object(AnswerShape::members([("n", AnswerShape::Integer { min: 0, max: INTEGER_MAX })]));
    for (text, expected) in [
        ("85", Some(85)),
        ("85.0", Some(85)),
        ("8.5e1", Some(85)),
        ("85.00000000000000001", None),
        ("9007199254740991", Some(INTEGER_MAX)),
        ("9007199254740991.5", None),
        ("9007199254740993", None),
        ("-1", None),
        ("\"85\"", None),
    ] {
        let text = format!("{{\"n\":{text}}}");
        let said = serde_json::from_str(&text).unwrap();
        assert_eq!(shape.read(&said, &text).ok().and_then(|read| read["n"].as_i64()), expected, "{text}");
    }
}

#[test]
fn integers_and_texts_may_be_chosen_from_together() {
    let mixed = AnswerShape::OneOf(vec![AttrValue::Int(5), AttrValue::Text("door".to_owned())]);
    let schema: Value = serde_json::from_str(&mixed.to_schema(AnswerForm::Alternatives)).unwrap();
    assert_eq!(schema["type"], json!(["integer", "string"]));
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for (said, is_fit) in [(json!(5), true), (json!("door"), true), (json!(6), false), (json!("5"), false)] {
        assert_eq!((validator.is_valid(&said), mixed.check(&said).is_ok()), (is_fit, is_fit), "{said}");
    }
}

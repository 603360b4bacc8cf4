//! A leak planted into a running exchange is found by its soak, and a model's adapter has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agents::model::config::{ModelConfig, TokenPrice};
use agents::model::http::HttpModel;
use agents::model::{AnswerShape, ChatMessage, ChatRole, Consultant, GaveUp, Misfit, Question, Subject};
use axum::Router;
use axum::routing::post;
use bus::memory::MemoryOptions;
use futures_util::StreamExt;
use prometheus::Registry;
use schemas::{AgentId, NegotiationId, Timestamp};
use studies::soak::drift::Drift;
use studies::soak::report::SoakVerdict;
use studies::soak::sample::SoakFolder;
use studies::soak::subject::Soak;
use studies::soak::{Place, SoakFaults, SoakPlan};
use telemetry::metrics::process::{self, Build};
use tokio_util::sync::CancellationToken;

const MIB: usize = 1024 * 1024;
/// What leaks every half second: at the rate of 1 MiB a minute a run of minutes would be needed.
const LEAK: usize = 2 * MIB;

/// The memory of a process is judged: one test at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_leaks_is_found() {
    let _alone = ALONE.lock().await;
    let out = tempfile::tempdir().expect("a folder");
    let plan = SoakPlan {
        place: Place::Embedded,
        agents: 3,
        policy: "high@1".to_owned(),
        rate: 5.0,
        faults: SoakFaults::None,
        sample_s: 0.5,
        seed: 1,
        metrics: Vec::new(),
        duration_s: 20.0,
    };
    let registry = Registry::new();
    process::register(&registry, Build { version: "0", git_sha: "unknown", rustc: "unknown" }).expect("a new registry");
    let leak = tokio::spawn(async {
        let mut leaked: Vec<Vec<u8>> = Vec::new();
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            leaked.push(vec![1; LEAK]);
        }
    });
    let soak = Soak {
        folder: SoakFolder::open(out.path(), &plan).expect("a new folder"),
        policy: policy_core::preset("high"),
        registry,
        cancel: CancellationToken::new(),
        progress: &|_| {},
    };
    let report =
        Box::pin(soak.in_process(bus::memory::open(MemoryOptions::default()), Vec::new())).await.expect("a report");
    leak.abort();
    let memory = report.series.iter().find(|series| series.series == "llmx/memory").expect("memory is measured");
    assert_eq!((memory.drift, report.verdict), (Drift::Drifting, SoakVerdict::Drifting), "{report}");
    let per_hour = (LEAK * 2 * 3600) as f64;
    let slope = memory.slope_per_hour.expect("a slope");
    assert!((0.7 * per_hour..1.5 * per_hour).contains(&slope), "{slope} bytes an hour are not {per_hour}");
}

const QUESTIONS: u64 = 10_000;
/// One in so many is never answered.
const SILENT: u64 = 3;
const TOKENS: [u64; 2] = [20, 2];

struct AnyNumber;

impl Question for AnyNumber {
    type Choice = i64;

    fn messages(&self) -> Vec<ChatMessage> {
        vec![ChatMessage { role: ChatRole::System, content: "Say a number. ".repeat(100) }]
    }

    fn shape(&self) -> AnswerShape {
        AnswerShape::Integer { min: 0, max: 99 }
    }

    fn judge(&self, answer: &serde_json::Value) -> Result<i64, Misfit> {
        Ok(answer.as_i64().unwrap_or_default())
    }
}

/// An endpoint that leaves every third question without an answer.
async fn endpoint() -> String {
    let asked = Arc::new(AtomicU64::new(0));
    let answer = move || {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            if number.is_multiple_of(SILENT) {
                std::future::pending::<()>().await;
            }
            let message = serde_json::json!({"message": {"role": "assistant", "content": "5"}});
            let [input, output] = TOKENS;
            let usage = serde_json::json!({"prompt_tokens": input, "completion_tokens": output});
            serde_json::json!({"choices": [message], "usage": usage}).to_string()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    tokio::spawn(axum::serve(listener, Router::new().route("/v1/chat/completions", post(answer))).into_future());
    url
}

fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("resident pages")
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_questions_a_third_of_them_dropped_take_no_memory_and_are_all_settled() {
    let _alone = ALONE.lock().await;
    let price = TokenPrice { input: 1_000_000, output: 1_000_000 };
    let config = ModelConfig { url: endpoint().await, price, ..ModelConfig::default() };
    // A question of 1,400 bytes is estimated at 350 tokens: what is left reserved of dropped ones would soon be too much.
    let dropped = QUESTIONS.div_ceil(SILENT);
    let [answered, dropped_cost] = [(QUESTIONS - dropped) * TOKENS.iter().sum::<u64>(), dropped * 350];
    let room = 64 * (350 + u64::from(config.answer_tokens));
    let limits = ModelConfig { calls_per_negotiation: 10_000, tokens_per_negotiation: 10_000_000, ..config };
    // On a busy machine more are dropped.
    let config = ModelConfig { budget: (answered + dropped_cost) * 3 / 2 + room, ..limits };
    let consultant = Consultant::new(HttpModel::try_new(&config, None).expect("an endpoint"), config);
    let consultant = &consultant;
    let ask = |number: u64| async move {
        let negotiation = NegotiationId::try_new(&format!("alice~{}", number % 64)).expect("an id");
        let times = (Timestamp::from_ms(1), Timestamp::from_ms(60_001));
        let subject = Subject::new(&AgentId::try_new("bob").expect("an id"), &negotiation, None, times);
        tokio::time::timeout(Duration::from_millis(50), consultant.consult(&subject, AnyNumber)).await
    };
    let ask_all = |numbers: std::ops::Range<u64>| async move {
        let answers: Vec<_> = futures_util::stream::iter(numbers).map(ask).buffer_unordered(32).collect().await;
        answers.into_iter().filter(|answer| *answer == Ok(Err(GaveUp::Budget))).count()
    };
    assert_eq!(ask_all(0..QUESTIONS / 5).await, 0);
    let early = resident_pages();
    let refused = ask_all(QUESTIONS / 5..QUESTIONS).await;
    assert_eq!(refused, 0, "{:?}", consultant.totals());
    let grown = resident_pages().saturating_sub(early) * 4096;
    println!("{grown} bytes more than after a fifth of {QUESTIONS} questions");
    assert!(grown < 2 * MIB, "{grown} bytes");
    let totals = consultant.totals();
    assert_eq!(totals.calls, QUESTIONS);
    assert!(totals.estimated_calls >= dropped && totals.answers > QUESTIONS / 2, "{totals:?}");
}

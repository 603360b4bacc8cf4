//! The same queries as real calls: an exchange in this process with its gateway, log, engine and register, 85 initiators and 15
//! contractors.
//!
//! A query under a document names its hash in the call. The contractor's offer names it too, the award pins it, and a native
//! routine answers. A query in natural language is answered by what stands for the contractor's model. Either way the answer
//! must be the one that was priced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use agents::contractor::performing::PerformingContractor;
use agents::control::ControlClient;
use agents::initiator::{CallEvent, CallReport, CallRequest, Initiator};
use agents::routine::{
    NativeRoutine, Routine, RoutineFault, RoutineLimits, RoutineRequest, RoutineRunner, RoutineTable,
};
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::{AgentHandle, AgentOptions, Contractor, ContractorConfig};
use agora::DocumentHash;
use bus::memory::{self, MemoryOptions};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use schemas::control::Registration;
use schemas::document::{CallDocuments, RoutineKind, RoutineReport};
use schemas::payload::Cfp;
use schemas::{Address, AgentId, TopicName};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};

use super::conversation::QueryMessages;
use super::query::QueryRecord;
use super::workload::{Assistant, TaskServer, Workload};
use crate::study::StudyError;

/// The policy of directed calls.
const POLICY: &str = "agora";
/// How long contractors have to offer, in milliseconds.
const REPLY_WITHIN_MS: u64 = 10_000;
/// Differences that are told; all are counted.
const TOLD_MAX: usize = 10;

/// What the calls came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LiveFigures {
    /// Calls.
    pub calls: usize,
    /// Calls whose award pinned the document of the query, which a native routine followed.
    pub by_routine: usize,
    /// Calls that pinned no document, answered in natural language.
    pub in_language: usize,
    /// Calls that came to anything else, or to another answer.
    pub differences: usize,
    /// What the first of them were.
    pub told: Vec<String>,
    /// Mean time from the call to its end, in milliseconds.
    pub mean_ms: f64,
}

/// The request that is open, and what a server answers to it.
#[derive(Debug, Clone, Default)]
struct AnswerTable(Arc<Mutex<Option<(String, String)>>>);

impl AnswerTable {
    fn set(&self, request: &str, answer: &str) {
        let open = Some((request.to_owned(), answer.to_owned()));
        *self.0.lock() = open;
    }

    fn answer(&self, request: &str) -> Result<String, String> {
        let open = self.0.lock();
        let (_, answer) = open.as_ref().filter(|(asked, _)| asked == request).ok_or("nobody knows")?;
        Ok(answer.clone())
    }
}

/// What stands for a contractor's model.
struct AnsweringModel(AnswerTable);

impl Routine for AnsweringModel {
    fn kind(&self) -> RoutineKind {
        RoutineKind::Model
    }

    fn run(&self, request: RoutineRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let answer = self.0.answer(&request.text).map_err(RoutineFault::Failed);
        async move { answer }.boxed()
    }
}

/// A running exchange with the agents of a workload.
struct LiveNetwork {
    exchange: Exchange,
    control: ControlClient,
    initiators: BTreeMap<String, Initiator>,
    answers: BTreeMap<String, AnswerTable>,
    contractors: Vec<AgentHandle<PerformingContractor>>,
    cancel: CancellationToken,
}

/// Makes every query a call, one after another, and compares it with its record.
///
/// # Errors
/// [`StudyError::Unplayed`] when the exchange or an agent does not start, or ends.
pub async fn play(workload: &Workload, records: &[QueryRecord]) -> Result<LiveFigures, StudyError> {
    let mut network = LiveNetwork::start(workload, records).await?;
    let (mut figures, began) = (LiveFigures::default(), Instant::now());
    for (record, query) in records.iter().zip(&workload.queries) {
        let Some(server) = workload.servers.get(query.server) else { continue };
        let document = record.document.as_deref().map(DocumentHash::try_new).transpose()?;
        let messages = QueryMessages::new(server.kind, &query.data, document.map(|_| ""));
        figures.calls += 1;
        match network.call(record, document, &messages).await? {
            None if document.is_some() => figures.by_routine += 1,
            None => figures.in_language += 1,
            Some(difference) => {
                figures.differences += 1;
                if figures.told.len() < TOLD_MAX {
                    figures.told.push(format!("query {}: {difference}", record.query));
                }
            }
        }
    }
    figures.mean_ms = began.elapsed().as_secs_f64() * 1000.0 / figures.calls.max(1) as f64;
    network.end().await;
    Ok(figures)
}

impl LiveNetwork {
    async fn start(workload: &Workload, records: &[QueryRecord]) -> Result<Self, StudyError> {
        let bus = memory::open(MemoryOptions::default());
        let exchange = Exchange::start(bus, ExchangeOptions::default()).await.map_err(live)?;
        let control = ControlClient::try_new(exchange.url()).map_err(live)?;
        let mut network = Self {
            exchange,
            control,
            initiators: BTreeMap::new(),
            answers: BTreeMap::new(),
            contractors: Vec::new(),
            cancel: CancellationToken::new(),
        };
        for server in &workload.servers {
            network.add_contractor(server, records).await?;
        }
        for assistant in &workload.assistants {
            network.add_initiator(assistant).await?;
        }
        Ok(network)
    }

    /// A contractor with a native routine for each document that is used with it.
    async fn add_contractor(&mut self, server: &TaskServer, records: &[QueryRecord]) -> Result<(), StudyError> {
        let agent = AgentId::try_new(&server.name)?;
        let identity = self.exchange.identity(&agent).map_err(live)?;
        let topic = TopicName::try_new("agora").map_err(live)?;
        let registration = Registration { topics: vec![topic], ..Registration::open_to_all() };
        self.control.register(&agent, &identity.token.current(), &registration).await.map_err(live)?;
        let (answers, mut table) = (AnswerTable::default(), RoutineTable::default());
        let used = records.iter().filter(|record| record.responder == server.name);
        for text in used.filter_map(|record| record.document.as_deref()) {
            let document = DocumentHash::try_new(text)?;
            if table.routine(document).is_none() {
                let known = answers.clone();
                let routine = NativeRoutine::new(move |request| known.answer(request));
                table.add(document, Arc::new(routine)).map_err(live)?;
            }
        }
        let runner = RoutineRunner::new(table, RoutineLimits::default());
        let runner = Arc::new(runner.with_model(Arc::new(AnsweringModel(answers.clone()))));
        let contractor = Contractor::try_new(&agent, ContractorConfig::default()).map_err(live)?;
        let transport: Arc<dyn Transport> = Arc::new(BusTransport::new(&self.exchange.bus));
        let way = (transport, identity, AgentOptions::default());
        let handle = PerformingContractor::spawn(contractor, &runner, way, self.cancel.clone());
        handle.connected().await.map_err(live)?;
        self.contractors.push(handle);
        self.answers.insert(server.name.clone(), answers);
        Ok(())
    }

    async fn add_initiator(&mut self, assistant: &Assistant) -> Result<(), StudyError> {
        let identity = self.exchange.identity(&AgentId::try_new(&assistant.name)?).map_err(live)?;
        let initiator = Initiator::spawn(BusTransport::new(&self.exchange.bus), identity, AgentOptions::default());
        initiator.connected().await.map_err(live)?;
        self.initiators.insert(assistant.name.clone(), initiator);
        Ok(())
    }

    /// One call to its end; in words what differs from the query, none where nothing does.
    async fn call(
        &mut self,
        record: &QueryRecord,
        document: Option<DocumentHash>,
        messages: &QueryMessages<'_>,
    ) -> Result<Option<String>, StudyError> {
        let (Some(initiator), Some(answers)) =
            (self.initiators.get(&record.initiator), self.answers.get(&record.responder))
        else {
            return Ok(Some("its agents are not of the network".to_owned()));
        };
        answers.set(messages.request(), messages.answer());
        let cfp = Cfp {
            task: Some(messages.request().to_owned()),
            policy: Some(POLICY.to_owned()),
            reply_within_ms: Some(REPLY_WITHIN_MS),
            documents: document.map(|hash| CallDocuments { hashes: vec![hash], require: true }),
            ..Cfp::default()
        };
        let to = vec![Address::Agent(AgentId::try_new(&record.responder)?)];
        let request = CallRequest::new(format!("query-{}", record.query), to, cfp);
        let events = initiator.call_to_end(request).await.map_err(live)?;
        let result = |event: &CallEvent| {
            if let CallReport::Done(report) = &event.report {
                Some((report.result.clone(), report.routine))
            } else {
                None
            }
        };
        let done = events.iter().find_map(result);
        let kind = if document.is_some() { RoutineKind::Native } else { RoutineKind::Language };
        let expected = (Some(messages.answer().to_owned()), Some(RoutineReport { hash: document, kind }));
        Ok(match done {
            Some(found) if found == expected => None,
            Some((result, routine)) => Some(format!("answered {result:?} by {routine:?}, expected {expected:?}")),
            None => Some(format!("not done: {:?}", events.last().map(|event| &event.report))),
        })
    }

    async fn end(self) {
        for initiator in self.initiators.into_values() {
            let _ = initiator.shutdown().await;
        }
        self.cancel.cancel();
        for contractor in self.contractors {
            let _ = contractor.join().await;
        }
        self.exchange.shutdown().await;
    }
}

fn live(error: impl std::error::Error) -> StudyError {
    StudyError::unplayed("the calls through the exchange", error)
}

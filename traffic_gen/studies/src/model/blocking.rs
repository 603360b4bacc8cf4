//! Consultations that a caller waits for.

use std::sync::Arc;

use agents::model::{
    AnswerForm, CompletionRequest, Consultant, Consultation, GaveUp, KeptPrompts, ModelAccounts, ModelConfig,
    ModelTotals, Question, StubModel, Subject, TokenUsage,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Microseconds that a stub takes for an answer.
const STUB_ANSWER_US: u64 = 1_000;

/// A model that answers while its caller waits.
pub enum BlockingConsultant {
    /// A stub, on a virtual clock.
    Stub(Box<VirtualStub>),
    /// A model elsewhere. The caller must be on no thread of the runtime.
    Live(Arc<Consultant>, Handle),
}

/// Sees what is put to a model.
type Watching = dyn Fn(&CompletionRequest) + Send + Sync;

/// A stub with its accounts, on a virtual clock.
pub struct VirtualStub {
    stub: StubModel,
    config: ModelConfig,
    accounts: Mutex<ModelAccounts>,
    put: Option<Box<Watching>>,
    kept: Option<Arc<KeptPrompts>>,
}

impl VirtualStub {
    /// A stub that is used within the limits of a configuration.
    pub fn new(stub: StubModel, config: ModelConfig) -> Self {
        Self { stub, accounts: Mutex::new(ModelAccounts::new(&config)), config, put: None, kept: None }
    }

    /// The same, which shows everything that is put to it.
    pub fn showing(mut self, put: impl Fn(&CompletionRequest) + Send + Sync + 'static) -> Self {
        self.put = Some(Box::new(put));
        self
    }

    /// The same, whose calls are kept.
    pub fn keeping(mut self, kept: Arc<KeptPrompts>) -> Self {
        self.kept = Some(kept);
        self
    }

    fn consult<Q: Question>(&self, subject: &Subject, question: Q) -> Result<Q::Choice, GaveUp> {
        let seed = retry::hash(subject.negotiation.as_str(), retry::hash(subject.agent.as_str(), 0));
        let form = AnswerForm::Alternatives;
        let consultation = Consultation::new(question, &self.config, form, subject.deadline, seed);
        consultation.run(subject.asked_at, |now, request| {
            let mut accounts = self.accounts.lock();
            let bytes = request.messages.iter().map(|message| message.content.len()).sum();
            let most = TokenUsage { output: request.answer_tokens.into(), ..TokenUsage::estimated(bytes, 0) };
            let room = accounts.reserve(now, &subject.agent, &subject.negotiation, most)?;
            self.put.iter().for_each(|put| put(request));
            let answer = self.stub.answer(request);
            self.kept.iter().for_each(|kept| kept.keep(subject, (request.retry, &request.messages), &answer));
            let counted = answer.as_ref().map_or_else(|_| Some(TokenUsage::default()), |completion| completion.usage);
            let _ = accounts.settle(room, counted, most);
            accounts.note_answer(true);
            Some((answer, STUB_ANSWER_US))
        })
    }
}

impl BlockingConsultant {
    /// Asks a question until it is answered or given up.
    ///
    /// # Errors
    /// [`GaveUp`] says why there is no choice.
    pub fn consult<Q: Question>(&self, subject: &Subject, question: Q) -> Result<Q::Choice, GaveUp> {
        match self {
            Self::Stub(stub) => stub.consult(subject, question),
            Self::Live(consultant, runtime) => runtime.block_on(consultant.consult(subject, question)),
        }
    }

    /// Everything spent so far.
    pub fn totals(&self) -> ModelTotals {
        match self {
            Self::Stub(stub) => stub.accounts.lock().totals(),
            Self::Live(consultant, _) => consultant.totals(),
        }
    }
}

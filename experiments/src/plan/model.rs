//! The model that the contractors of a population ask for their terms.

use toml::Spanned;

use super::fault::FaultList;

/// What the file of a model says, without its key.
pub type PopulationModel = agents::model::ModelAgentConfig;

/// Most bytes of a model's file: instructions have some thousands.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the file of a model, which is asked nothing yet. Every fault of it, and a key that is not set, is noted.
pub fn read(file: &Spanned<String>, faults: &mut FaultList<'_>) -> Option<PopulationModel> {
    read_file(file.get_ref())
        .map_err(|fault| faults.add(&file.span(), format!("model {}: {fault}", file.get_ref()), "see docs/models.md"))
        .ok()
}

fn read_file(path: &str) -> Result<PopulationModel, String> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let model: PopulationModel = toml::from_str(&text).map_err(|error| error.to_string().replace('\n', " "))?;
    model.check().map_err(|error| error.to_string())?;
    model.model.key().map_err(|error| error.to_string())?;
    Ok(model)
}

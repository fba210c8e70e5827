//! Tokens from a file that somebody else keeps fresh, such as a projected Kubernetes service account token.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::io::AsyncReadExt as _;

use super::answer::LONGEST;
use super::{TokenFailure, TokenFuture, TokenProblem, TokenSource, from_output};

/// Reads a file anew for every connection: the bare token, or JSON with `access_token`.
#[derive(Clone, Debug)]
pub struct FileTokens {
    path: PathBuf,
}

impl FileTokens {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl TokenSource for FileTokens {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async {
            let read = async {
                let mut text = Vec::new();
                let file = tokio::fs::File::open(&self.path).await?;
                file.take(LONGEST as u64 + 1).read_to_end(&mut text).await?;
                Ok(text)
            };
            let text = read.await.map_err(|error| TokenFailure::Read(Arc::new(error)))?;
            let text = String::from_utf8(text).map_err(|_| TokenFailure::Answer(TokenProblem::Characters))?;
            from_output(&text, SystemTime::now()).map_err(TokenFailure::Answer)
        })
    }

    fn describe(&self) -> String {
        format!("the file {}", self.path.display())
    }

    fn is_cheap(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tokens;
    use super::*;

    #[tokio::test]
    async fn a_file_that_changes_gives_the_new_token_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let tokens = Tokens::new(FileTokens::new(file.path()));
        for expected in ["one", "two"] {
            std::fs::write(file.path(), format!("{expected}\n")).unwrap();
            assert_eq!(tokens.token().await.unwrap().value().expose(), expected);
        }
        std::fs::write(file.path(), "two words").unwrap();
        let error = tokens.token().await.unwrap_err().to_string();
        assert!(error.contains(&file.path().display().to_string()) && !error.contains("two words"), "{error}");
    }
}

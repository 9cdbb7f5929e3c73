//! The trained model as an environment, text in and text out.

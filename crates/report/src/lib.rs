//! Run folders to tables, figures and one HTML page.

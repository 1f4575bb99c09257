"""Images, videos and pages from run folders. Nothing here trains."""
